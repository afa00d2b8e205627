package secure

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"math/big"

	"github.com/purerdma/purerdma/internal/leaktest"
	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func keyed(t testing.TB, b byte) Wrap {
	t.Helper()
	w, err := Key(bytes.Repeat([]byte{b}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// link is both ends of a TCP connection.
func link(t testing.TB) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	for _, c := range []net.Conn{client, server} {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return client, server
}

// wrapBoth runs the handshake at both ends.
func wrapBoth(t testing.TB, cw, sw Wrap, rawClient, rawServer net.Conn) (client, server net.Conn, cerr, serr error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		server, serr = sw(t.Context(), rawServer, true)
		if serr != nil {
			_ = rawServer.Close()
		}
	}()
	client, cerr = cw(t.Context(), rawClient, false)
	if cerr != nil {
		_ = rawClient.Close()
	}
	<-done
	return
}

func wraps(t testing.TB) map[string]Wrap {
	dir := t.TempDir()
	authority := newAuthority(t)
	authority.write(t, dir, "job")
	w, err := TLSFromFiles(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem"), "job")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]Wrap{"key": keyed(t, 1), "TLS": w}
}

func TestBytesArrive(t *testing.T) {
	for name, w := range wraps(t) {
		t.Run(name, func(t *testing.T) {
			seed := mathrand.Uint64()
			r := mathrand.New(mathrand.NewPCG(seed, 0))
			a, b := link(t)
			c, s, cerr, serr := wrapBoth(t, w, w, a, b)
			if cerr != nil || serr != nil {
				t.Fatal(cerr, serr)
			}
			var want bytes.Buffer
			written := make(chan struct{})
			go func() {
				defer close(written)
				for range 50 {
					part := make([]byte, r.IntN(40<<10))
					_, _ = rand.Read(part)
					want.Write(part)
					if n, err := c.Write(part); n != len(part) || err != nil {
						t.Errorf("wrote %d of %d, %v", n, len(part), err)
					}
				}
				if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
					t.Error(err)
				}
			}()
			got, err := io.ReadAll(s)
			<-written
			if err != nil || !bytes.Equal(got, want.Bytes()) {
				t.Errorf("%d bytes of %d, %v (seed %d)", len(got), want.Len(), err, seed)
			}
			if _, err := s.Write([]byte("back")); err != nil {
				t.Error(err)
			}
			_ = s.Close()
			if got, err := io.ReadAll(c); string(got) != "back" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
			_ = c.Close()
		})
	}
}

// Reads cut off by deadlines lose nothing.
func TestDeadlinesLoseNothing(t *testing.T) {
	a, b := link(t)
	c, s, cerr, serr := wrapBoth(t, keyed(t, 1), keyed(t, 1), a, slow{b})
	if cerr != nil || serr != nil {
		t.Fatal(cerr, serr)
	}
	text := bytes.Repeat([]byte("0123456789"), 20)
	go func() { _, _ = c.Write(text); _ = c.Close() }()
	var got []byte
	late := 0
	for {
		_ = s.SetReadDeadline(time.Now().Add(200 * time.Microsecond))
		buf := make([]byte, 7)
		n, err := s.Read(buf)
		got = append(got, buf[:n]...)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			late++
		} else if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, text) || late == 0 {
		t.Errorf("%d bytes, %d deadlines", len(got), late)
	}
}

// slow gives a byte at a time.
type slow struct{ net.Conn }

func (s slow) Read(b []byte) (int, error) {
	time.Sleep(20 * time.Microsecond)
	return s.Conn.Read(b[:min(1, len(b))])
}

func TestWrongKeyAndPlainPeers(t *testing.T) {
	for name, c := range map[string]struct {
		client, server Wrap
		want           error
	}{
		"other key":    {keyed(t, 2), keyed(t, 1), ErrKey},
		"plain client": {plain("\x6c\x9d\x4b\xfc\xf2\xb9\x4a\x56" + strings.Repeat("x", 100)), keyed(t, 1), ErrPlain},
		"plain server": {keyed(t, 1), plain(strings.Repeat("y", 100)), ErrPlain},
	} {
		a, b := link(t)
		_, _, cerr, serr := wrapBoth(t, c.client, c.server, a, b)
		if !errors.Is(cerr, c.want) && !errors.Is(serr, c.want) {
			t.Errorf("%s: %v, %v", name, cerr, serr)
		}
	}
}

// plain is an end that just speaks.
func plain(says string) Wrap {
	return func(_ context.Context, c net.Conn, _ bool) (net.Conn, error) {
		_, _ = c.Write([]byte(says))
		_, _ = io.Copy(io.Discard, c)
		return nil, errors.New("plain")
	}
}

// tap carries bytes between a client and a server and lets a test change them.
type tap struct {
	toServer, toClient bytes.Buffer
}

func (p *tap) carry(client, server net.Conn, change func(toServer bool, off int, b []byte)) *sync.WaitGroup {
	var both sync.WaitGroup
	one := func(from, to net.Conn, seen *bytes.Buffer, toServer bool) {
		buf := make([]byte, 4096)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				if change != nil {
					change(toServer, seen.Len(), buf[:n])
				}
				seen.Write(buf[:n])
				_, _ = to.Write(buf[:n])
			}
			if err != nil {
				_ = to.(*net.TCPConn).CloseWrite()
				return
			}
		}
	}
	both.Go(func() { one(client, server, &p.toServer, true) })
	both.Go(func() { one(server, client, &p.toClient, false) })
	return &both
}

// exchange runs a short conversation through a tap; err is of the server, which reads.
func exchange(t *testing.T, change func(toServer bool, off int, b []byte)) (p *tap, got string, cerr, serr error) {
	t.Helper()
	c, inner := link(t)
	outer, s := link(t)
	p = &tap{}
	carried := p.carry(inner, outer, change)
	client, server, cerr, serr := wrapBoth(t, keyed(t, 1), keyed(t, 1), c, s)
	if cerr == nil && serr == nil {
		_, _ = client.Write([]byte("hello"))
		_ = client.Close()
		var b []byte
		b, serr = io.ReadAll(server)
		got = string(b)
	}
	_, _ = c.Close(), s.Close()
	carried.Wait()
	return p, got, cerr, serr
}

// Every bit of every byte counts, in the handshake and after it, and so does every byte that is missing.
func TestEveryByteCounts(t *testing.T) {
	p, got, cerr, serr := exchange(t, nil)
	if got != "hello" || cerr != nil || serr != nil {
		t.Fatal(got, cerr, serr)
	}
	for _, toServer := range []bool{true, false} {
		n := p.toServer.Len()
		if !toServer {
			n = p.toClient.Len()
		}
		for at := range n {
			_, got, cerr, serr := exchange(t, func(way bool, off int, b []byte) {
				if way == toServer && at >= off && at < off+len(b) {
					b[at-off] ^= 1 << (at % 8)
				}
			})
			if cerr == nil && serr == nil {
				t.Errorf("byte %d changed (to server: %v): got %q and no error", at, toServer, got)
			}
		}
	}
}

// A recorded client is refused: the server's nonce is another.
func TestReplayAndReflection(t *testing.T) {
	p, _, _, _ := exchange(t, nil)
	c, s := link(t)
	_, _ = c.Write(p.toServer.Bytes())
	if _, err := keyed(t, 1)(t.Context(), s, true); !errors.Is(err, ErrKey) {
		t.Errorf("replay: %v", err)
	}
	// A server that sends back what the client says.
	c, s = link(t)
	go func() { // hides that both are TCP: the library would splice, and keep the pipe for a while
		_, _ = io.Copy(struct{ io.Writer }{s}, struct{ io.Reader }{s})
	}()
	go func() { time.Sleep(50 * time.Millisecond); _ = s.(*net.TCPConn).CloseWrite() }()
	if _, err := keyed(t, 1)(t.Context(), c, false); err == nil {
		t.Error("a reflection was taken for a server")
	}
	_ = s.Close()
}

func TestTruncationShows(t *testing.T) {
	a, b := link(t)
	c, s, _, _ := wrapBoth(t, keyed(t, 1), keyed(t, 1), a, b)
	_, _ = c.Write([]byte("hello"))
	_ = a.Close()
	if got, err := io.ReadAll(s); string(got) != "hello" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	key := strings.Repeat("0a", 32)
	if _, err := KeyFromFile(file("good", key+"\n", 0o600)); err != nil {
		t.Error(err)
	}
	for want, path := range map[string]string{
		"mode 0644":   file("open", key, 0o644),
		"hexadecimal": file("text", "secret!", 0o600),
		"31 bytes":    file("short", key[2:], 0o600),
		"no such":     filepath.Join(dir, "none"),
	} {
		if _, err := KeyFromFile(path); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "0a0a") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestTLSRefuses(t *testing.T) {
	authority, other := newAuthority(t), newAuthority(t)
	w := authority.wrap(t, "job")
	for name, bad := range map[string]Wrap{"other authority": other.wrap(t, "job"), "other name": authority.wrap(t, "another"),
		"plain": plain("hello")} {
		for _, server := range []bool{false, true} {
			a, b := link(t)
			var c net.Conn
			var cerr, serr error
			if server {
				c, _, cerr, serr = wrapBoth(t, w, bad, a, b)
			} else {
				c, _, cerr, serr = wrapBoth(t, bad, w, a, b)
			}
			if cerr == nil && serr == nil {
				t.Errorf("%s was taken (as server: %v)", name, server)
			}
			if c != nil {
				_ = c.Close()
			}
		}
	}
	if _, err := TLS(nil, nil, ""); err == nil {
		t.Error("TLS without a certificate")
	}
}

// A job whose connections are secured meets and talks; ranks without, or with another key, do not get in.
func TestJob(t *testing.T) {
	for name, w := range wraps(t) {
		t.Run(name, func(t *testing.T) {
			network := socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0"), Secure: w}
			root, err := bootstrap.NewRoot(t.Context(), bootstrap.RootConfig{Net: network})
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			for what, secure := range map[string]Wrap{"plain": nil, "other key": keyed(t, 9)} {
				n := network
				n.Secure = secure
				if _, err := bootstrap.Join(t.Context(), bootstrap.Config{ID: root.ID(), Rank: 1, Size: 3, Net: n, Timeout: time.Second}); err == nil {
					t.Errorf("%s: got in", what)
				}
			}
			var all sync.WaitGroup
			for rank := range 3 {
				all.Go(func() {
					m, err := bootstrap.Join(t.Context(), bootstrap.Config{ID: root.ID(), Rank: rank, Size: 3, Net: network, Timeout: 20 * time.Second})
					if err != nil {
						t.Error(err)
						return
					}
					if err := m.Send(t.Context(), (rank+1)%3, 1, fmt.Append(nil, rank)); err != nil {
						t.Error(err)
					}
					if b, err := m.Recv(t.Context(), (rank+2)%3, 1); err != nil || string(b) != fmt.Sprint((rank+2)%3) {
						t.Errorf("%q, %v", b, err)
					}
					if err := m.Barrier(t.Context()); err != nil {
						t.Error(err)
					}
					start := time.Now()
					_ = m.Close()
					t.Logf("closed after %v", time.Since(start))
				})
			}
			all.Wait()
		})
	}
}

type authority struct {
	cert *x509.Certificate
	der  []byte
	key  ed25519.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	a := &authority{key: key}
	if a.der, err = x509.CreateCertificate(rand.Reader, template, template, pub, key); err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(a.der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) issue(t testing.TB, name string) *tls.Certificate {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, pub, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) wrap(t testing.TB, name string) Wrap {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	cert := a.issue(t, name)
	w, err := TLS(func() (*tls.Certificate, error) { return cert, nil }, pool, "job")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (a *authority) write(t testing.TB, dir, name string) {
	t.Helper()
	cert := a.issue(t, name)
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"ca.pem": {Type: "CERTIFICATE", Bytes: a.der},
		"cert.pem": {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}, "key.pem": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
