package nccl

import (
	"strings"
	"testing"
)

func TestNotThere(t *testing.T) {
	_, err := Open("/nowhere/libnccl.so.2")
	if err == nil || !strings.Contains(err.Error(), "site-packages/nvidia/nccl/lib") {
		t.Error(err)
	}
}

// A library that is not NCCL's is refused by what it lacks.
func TestOtherLibrary(t *testing.T) {
	_, err := Open("libc.so.6")
	if err == nil || !strings.Contains(err.Error(), "has no ncclGetVersion") {
		t.Error(err)
	}
}

func TestFailure(t *testing.T) {
	for code, want := range map[int]string{1: "ncclUnhandledCudaError (1)", 5: "ncclInvalidUsage (5)", 7: "ncclInProgress (7)", 8: "result 8", -1: "result -1"} {
		if err := failure("ncclSend", code); err == nil || !strings.Contains(err.Error(), "ncclSend: "+want) {
			t.Errorf("%d: %v", code, err)
		}
	}
	if err := failure("ncclSend", 0); err != nil {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	c := &Comm{l: &Library{}, size: 2}
	for _, err := range []error{c.Send(0, -1, 0, 0), c.Recv(0, 1, 2, 0), c.Send(0, 1, -1, 0)} {
		if err == nil {
			t.Error("it was called")
		}
	}
	if _, err := (&Library{}).Init([IDSize]byte{}, 2, 2); err == nil {
		t.Error("rank 2 of 2")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
