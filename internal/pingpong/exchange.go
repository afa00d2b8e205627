package pingpong

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/purerdma/purerdma/ibverbs"
)

// address is how the ends name a queue pair to each other, as text with a NUL.
type address struct {
	qpn, psn uint32
	gid      ibverbs.GID
}

const (
	addressLen = len("0000:000000:000000:00000000000000000000000000000000\x00")
	ready      = "done\x00"
	// srqAddresses is how many addresses the ends of an SRQ session exchange,
	// however many of them are used.
	srqAddresses = 256
)

func (a address) String() string {
	return fmt.Sprintf("%04x:%06x:%06x:%s\x00", 0, a.qpn, a.psn, hex.EncodeToString(a.gid[:]))
}

func parseAddress(text string) (a address, err error) {
	var lid uint32
	var gid string
	if _, err := fmt.Sscanf(strings.NewReplacer(":", " ", "\x00", "").Replace(text), "%x %x %x %s", &lid, &a.qpn, &a.psn, &gid); err != nil {
		return a, fmt.Errorf("address %q of the peer: %w", text, err)
	}
	if len(gid) != hex.EncodedLen(len(a.gid)) {
		return a, fmt.Errorf("GID in %q has %d digits", text, len(gid))
	}
	if _, err := hex.Decode(a.gid[:], []byte(gid)); err != nil {
		return a, fmt.Errorf("GID in %q: %w", text, err)
	}
	return a, nil
}

// session is the protocol: addresses by TCP, then messages in turn. The client
// begins with both.
func (e *end) session(ctx context.Context, conn net.Conn, client bool) error {
	if client {
		if err := e.nameOurs(conn); err != nil {
			return err
		}
	}
	if err := e.readTheirs(conn); err != nil {
		return err
	}
	for _, c := range e.qps {
		if err := e.connect(c); err != nil {
			return err
		}
	}
	if client {
		if _, err := io.WriteString(conn, ready); err != nil {
			return err
		}
	} else {
		if err := e.nameOurs(conn); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, make([]byte, len(ready))); err != nil {
			return fmt.Errorf("word that the peer is ready: %w", err)
		}
	}
	return e.play(ctx, client)
}

func (e *end) addresses() int {
	if e.Kind == SRQ {
		return srqAddresses
	}
	return 1
}

func (e *end) nameOurs(conn net.Conn) error {
	var all strings.Builder
	for i := range e.addresses() {
		var a address
		if i < len(e.qps) {
			a = address{qpn: e.qps[i].qp.Num(), psn: e.qps[i].psn, gid: e.at.GID.GID}
		}
		all.WriteString(a.String())
	}
	_, err := io.WriteString(conn, all.String())
	return err
}

func (e *end) readTheirs(conn net.Conn) error {
	text := make([]byte, addressLen)
	for i := range e.addresses() {
		if _, err := io.ReadFull(conn, text); err != nil {
			return fmt.Errorf("address %d of the peer: %w", i, err)
		}
		if i >= len(e.qps) {
			continue
		}
		var err error
		if e.qps[i].peer, err = parseAddress(string(text)); err != nil {
			return err
		}
	}
	return nil
}
