//go:build linux

package shmtransport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/internal/niltest"
)

// waits are all that wait, by what their errors say, each on an end of its own.
func waits(t *testing.T) map[string]func(context.Context) error {
	process := fmt.Sprintf("shared memory with process %d: wait for ", os.Getpid())
	conn := func() *Conn { a, _ := pair(t); return a }
	recv, batch, wait, send, sends := conn(), conn(), conn(), conn(), conn()
	full := make([]byte, 4*DefaultData)
	l := listen(t)
	f, err := MakeFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]func(context.Context) error{
		process + "a message":   func(ctx context.Context) error { _, err := recv.Recv(ctx, make([]byte, 8)); return err },
		process + "a message: ": func(ctx context.Context) error { return wait.Wait(ctx) },
		process + "a message: c": func(ctx context.Context) error {
			_, err := batch.RecvBatch(ctx, [][]byte{full}, make([]int, 1))
			return err
		},
		process + "room":     func(ctx context.Context) error { return send.Send(ctx, full) },
		process + "room: ":   func(ctx context.Context) error { _, err := sends.SendBatch(ctx, [][]byte{full}); return err },
		"shared memory at @": func(ctx context.Context) error { _, err := l.Accept(ctx); return err },
		"shared memory: no other process has attached /": func(ctx context.Context) error { _, err := f.Attached(ctx); return err },
	}
}

func TestNilContext(t *testing.T) {
	var ours [2]*net.UnixConn
	for i := range ours {
		a, b := sockets(t)
		ours[i] = a
		defer func() { _ = b.Close() }()
	}
	calls := map[string]func() error{
		"Dial":  func() error { _, err := Dial(niltest.Context, "@nobody"); return err },
		"Offer": func() error { _, err := Offer(niltest.Context, ours[0]); return err },
		"Take":  func() error { _, err := Take(niltest.Context, ours[1]); return err },
	}
	for name, wait := range waits(t) {
		calls[name] = func() error { return wait(niltest.Context) }
	}
	niltest.Refuses(t, calls)
}

// A wait that its context ends names the other process and what is waited for, and is the context's error and its cause.
func TestEndedWaits(t *testing.T) {
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	for says, wait := range waits(t) {
		if err := wait(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, reason) || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v, want %s…", err, says)
		}
	}
	if _, err := Dial(ctx, "@nobody"); !errors.Is(err, context.Canceled) || !errors.Is(err, reason) {
		t.Errorf("Dial: %v", err)
	}
}
