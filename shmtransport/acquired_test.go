//go:build linux

package shmtransport

import (
	"bytes"
	"testing"
)

// What a Conn does ahead for its next message while it waits in Recv leaves memory from Acquire as the caller has filled it.
func TestAcquiredWhileReceiving(t *testing.T) {
	a, b := pair(t)
	buf := make([]byte, 64<<10)
	if err := a.Send(t.Context(), patterned(40_000, 1)); err != nil { // the next one is expected to be as long
		t.Fatal(err)
	}
	if _, err := b.Recv(t.Context(), buf); err != nil {
		t.Fatal(err)
	}
	want := patterned(40_000, 2)
	m, err := a.Acquire(len(want))
	if err != nil || m == nil {
		t.Fatal(len(m), err)
	}
	copy(m, want)
	received := make(chan error)
	go func() {
		_, err := a.Recv(t.Context(), make([]byte, 10))
		received <- err
	}()
	asleep(t, a.r.wait.asleep)
	if err := b.Send(t.Context(), []byte("go on")); err != nil {
		t.Fatal(err)
	}
	if err := <-received; err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(len(want)); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Recv(t.Context(), buf); err != nil || !bytes.Equal(buf[:n], want) {
		wrong := 0
		for i := range min(n, len(want)) {
			if buf[i] != want[i] {
				wrong++
			}
		}
		t.Errorf("%d bytes, %d of them wrong, %v", n, wrong, err)
	}
}
