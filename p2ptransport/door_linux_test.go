package p2ptransport

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// An owner of GPU memory that takes a question and gives no answer is waited for until the bound, or until nobody wants the answer any more.
func TestOwnerIsSilent(t *testing.T) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: "@purerdma-test-" + rand.Text(), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	const unwanted = 2 // the token of the answer that nobody wants
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	why := errors.New("nobody wants it")
	var over sync.WaitGroup
	over.Go(func() {
		for nc, err := l.Accept(); err == nil; nc, err = l.Accept() {
			over.Go(func() {
				token := make([]byte, 8)
				if n, _ := nc.Read(token); n == len(token) && token[0] == unwanted {
					cancel(why)
				}
				_, _ = nc.Read(token) // until who asked has gone
				_ = nc.Close()
			})
		}
	})
	_, nc, err := get(t.Context(), l.Addr().String(), 1, true, 50*time.Millisecond)
	if nc != nil || err == nil || !strings.Contains(err.Error(), "has not answered within 50ms") {
		t.Error(err)
	}
	if _, nc, err = get(ctx, l.Addr().String(), unwanted, true, time.Hour); nc != nil || !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	over.Wait()
}

// The kernel drops a descriptor for which this process has no room: that is not the owner's fault.
func TestNoRoomForADescriptor(t *testing.T) {
	if _, err := oneRight(nil, unix.MSG_CTRUNC); !errors.Is(err, unix.EMFILE) {
		t.Errorf("%v, want EMFILE", err)
	}
	if _, err := oneRight(nil, 0); err == nil || errors.Is(err, unix.EMFILE) {
		t.Errorf("nothing was sent: %v", err)
	}
}
