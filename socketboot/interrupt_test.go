package socketboot

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// What a context does to a connection ends with the function that Interrupt returns, also where the context has ended.
func TestInterruptLeavesNothing(t *testing.T) {
	c, peer := net.Pipe()
	defer c.Close()
	defer peer.Close()
	ctx, cancel := context.WithCancel(t.Context())
	end := Interrupt(ctx, c)
	cancel()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("the context did not end a read")
	}
	end()
	go func() { _, _ = peer.Write([]byte("x")) }()
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// Where time for Secure is up the error says with whom, and what Secure was at.
func TestSecureIsLate(t *testing.T) {
	c, peer := net.Pipe()
	defer peer.Close()
	atKey := errors.New("at the key")
	n := Net{Deadlines: Deadlines{Hello: time.Millisecond}, Secure: func(_ context.Context, c net.Conn, _ bool) (net.Conn, error) {
		_, err := c.Read(make([]byte, 1))
		return nil, errors.Join(atKey, err)
	}}
	_, err := n.AdmitPeer(t.Context(), c)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, atKey) || !strings.Contains(err.Error(), "with pipe") {
		t.Error(err)
	}
}
