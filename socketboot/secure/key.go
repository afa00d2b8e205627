package secure

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	greeting  = "prdma-k1"
	nonceLen  = 32
	tagLen    = sha256.Size
	maxRecord = 16 << 10
	// MinKey is the least length of a key in bytes.
	MinKey = 32
)

// Wrap is the type of socketboot.Net's Secure.
type Wrap = func(ctx context.Context, c net.Conn, server bool) (net.Conn, error)

// Causes, for errors.Is.
var (
	// ErrPlain says that the peer does not speak this protocol: it has no key set, or is a stranger.
	ErrPlain = errors.New("the peer does not authenticate itself")
	// ErrKey says that the peer has another key.
	ErrKey = errors.New("the peer has another key")
	// ErrForged says that bytes were changed, repeated or cut off on the way.
	ErrForged = errors.New("bytes were changed, repeated or cut off on the way")
)

// Key authenticates with a key that all processes of the job have. It copies the key.
func Key(key []byte) (Wrap, error) {
	if len(key) < MinKey {
		return nil, fmt.Errorf("secure: a key of %d bytes, want %d or more", len(key), MinKey)
	}
	key = bytes.Clone(key)
	return func(_ context.Context, c net.Conn, server bool) (net.Conn, error) {
		s, err := handshake(c, key, server)
		if err != nil {
			return nil, fmt.Errorf("secure: %s: %w", c.RemoteAddr(), err)
		}
		return s, nil
	}, nil
}

// KeyFromFile reads the key from a file that nobody but its owner can read or write: 64 or more hexadecimal digits, white space aside.
// `openssl rand -hex 32` makes one. A key never comes from an argument or a variable, which others can see.
func KeyFromFile(path string) (Wrap, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("secure: job key: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, fmt.Errorf("secure: job key: %w", err)
	} else if info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("secure: job key %s: others can read or write it (mode %04o), want 0600", path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return nil, fmt.Errorf("secure: job key: %w", err)
	}
	key, err := hex.DecodeString(string(bytes.Join(bytes.Fields(text), nil)))
	if err != nil {
		return nil, fmt.Errorf("secure: job key %s: want hexadecimal digits", path)
	}
	w, err := Key(key)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, path)
	}
	return w, nil
}

func mac(key []byte, label string, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(label))
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

func handshake(c net.Conn, key []byte, server bool) (net.Conn, error) {
	hi := append([]byte(greeting), make([]byte, nonceLen)...)
	_, _ = rand.Read(hi[len(greeting):]) // never fails
	read := func(n int) ([]byte, error) {
		b := make([]byte, n)
		_, err := io.ReadFull(c, b)
		return b, err
	}
	greet := func() ([]byte, error) {
		b, err := read(len(greeting))
		if err != nil {
			return nil, err
		}
		if string(b) != greeting {
			return nil, ErrPlain
		}
		nonce, err := read(nonceLen)
		return append(b, nonce...), err
	}
	if server {
		theirs, err := greet()
		if err != nil {
			return nil, err
		}
		seen := append(theirs, hi...)
		seen = append(seen, mac(key, "server", seen)...)
		if _, err := c.Write(seen[len(theirs):]); err != nil {
			return nil, err
		}
		proof, err := read(tagLen)
		if err != nil {
			return nil, fmt.Errorf("it refused our proof, or went away: %w", err)
		}
		if !hmac.Equal(proof, mac(key, "client", seen)) {
			return nil, ErrKey
		}
		return newConn(c, mac(key, "to client", seen, proof), mac(key, "to server", seen, proof)), nil
	}
	if _, err := c.Write(hi); err != nil {
		return nil, err
	}
	theirs, err := greet()
	if err != nil {
		return nil, err
	}
	seen := append(hi, theirs...)
	proof, err := read(tagLen)
	if err != nil {
		return nil, err
	}
	if !hmac.Equal(proof, mac(key, "server", seen)) {
		return nil, ErrKey
	}
	seen = append(seen, proof...)
	mine := mac(key, "client", seen)
	if _, err := c.Write(mine); err != nil {
		return nil, err
	}
	return newConn(c, mac(key, "to server", seen, mine), mac(key, "to client", seen, mine)), nil
}

// conn carries records. A read or write that a deadline ends in the middle is taken up by the next.
type conn struct {
	net.Conn
	out, in direction

	readMu  sync.Mutex
	record  []byte // being read: length, data, tag
	have    int
	plain   []byte // verified, not given away yet
	ended   bool
	writeMu sync.Mutex
	unsent  []byte // of a record that a deadline cut off
	shut    bool
}

// direction is the state of one way.
type direction struct {
	mac hash.Hash
	n   uint64
}

// seal is the tag of the next record.
func (d *direction) seal(record []byte) []byte {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], d.n)
	d.n++
	d.mac.Reset()
	d.mac.Write(n[:])
	d.mac.Write(record)
	return d.mac.Sum(nil)
}

func newConn(c net.Conn, out, in []byte) *conn {
	return &conn{Conn: c, out: direction{mac: hmac.New(sha256.New, out)}, in: direction{mac: hmac.New(sha256.New, in)},
		record: make([]byte, 4, 4+maxRecord+tagLen)}
}

// Read gives what has been verified.
func (c *conn) Read(b []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	if c.writeMu.TryLock() { // a reader waits for an answer to what must go out first
		err := c.flush()
		c.writeMu.Unlock()
		if err != nil {
			return 0, err
		}
	}
	for len(c.plain) == 0 {
		if c.ended {
			return 0, io.EOF
		}
		if err := c.readRecord(); err != nil {
			return 0, err
		}
	}
	n := copy(b, c.plain)
	c.plain = c.plain[n:]
	return n, nil
}

func (c *conn) readRecord() error {
	if err := c.fill(4); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(c.record)
	if n > maxRecord {
		return fmt.Errorf("secure: %s: a record of %d bytes: %w", c.RemoteAddr(), n, ErrForged)
	}
	c.record = c.record[:4+int(n)+tagLen]
	if err := c.fill(len(c.record)); err != nil {
		return err
	}
	body := c.record[:4+n]
	if !hmac.Equal(c.in.seal(body), c.record[4+n:]) {
		_ = c.Conn.Close()
		return fmt.Errorf("secure: %s: %w", c.RemoteAddr(), ErrForged)
	}
	c.plain, c.ended = body[4:], n == 0
	c.record, c.have = c.record[:4], 0
	return nil
}

// fill reads the record up to its byte n.
func (c *conn) fill(n int) error {
	for c.have < n {
		got, err := c.Conn.Read(c.record[c.have:n])
		c.have += got
		if err == io.EOF && c.have < n {
			return fmt.Errorf("secure: %s: the connection ended without a last record: %w", c.RemoteAddr(), io.ErrUnexpectedEOF)
		}
		if err != nil && c.have < n {
			return err
		}
	}
	return nil
}

// Write sends records. When it fails, n bytes are on their way, all of which the peer gets if a later Write succeeds.
func (c *conn) Write(b []byte) (n int, err error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.shut {
		return 0, net.ErrClosed
	}
	for len(b) > 0 {
		part := b[:min(len(b), maxRecord)]
		if err := c.flush(); err != nil {
			return n, err
		}
		c.add(part)
		n += len(part)
		b = b[len(part):]
	}
	return n, c.flush()
}

func (c *conn) add(part []byte) {
	record := binary.LittleEndian.AppendUint32(nil, uint32(len(part)))
	record = append(record, part...)
	c.unsent = append(record, c.out.seal(record)...)
}

func (c *conn) flush() error {
	for len(c.unsent) > 0 {
		n, err := c.Conn.Write(c.unsent)
		c.unsent = c.unsent[n:]
		if err != nil {
			return err
		}
	}
	return nil
}

// CloseWrite ends the own direction.
func (c *conn) CloseWrite() error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.shut {
		return nil
	}
	c.shut = true
	err := c.flush()
	if err == nil {
		c.add(nil)
		err = c.flush()
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		err = errors.Join(err, half.CloseWrite())
	}
	return err
}

// Close ends both directions. What another goroutine is still writing is cut off.
func (c *conn) Close() error {
	if c.writeMu.TryLock() {
		c.writeMu.Unlock()
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_ = c.CloseWrite()
	}
	return c.Conn.Close()
}
