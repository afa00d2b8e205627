package nettransport

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/gpu/gputest"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/ibverbs/softroce"
)

// A message goes from the memory of a GPU into that of a GPU, at offsets that are not page-aligned; the descriptors are closed
// before it does, and the receiver flushes it.
func TestDMABuf(t *testing.T) {
	f := softFabric(t)
	machine := gputest.New(gputest.Config{})
	g := openGPU(t, machine, 1)[0]
	p := connect(t, f, Config{}, Config{Flush: true})
	const size, from, to = 100_003, 4097, 13
	src, err := g.Alloc(size + from)
	if err != nil {
		t.Fatal(err)
	}
	dst, err := g.Alloc(size + to)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte{1, 2, 3, 5, 8, 13, 21}, size/7+1)[:size]
	if err := g.WriteTo(src+from, want); err != nil {
		t.Fatal(err)
	}
	register := func(c *Comm, at gpu.Ptr) *MR {
		fd, off, err := g.DMABuf(at, size)
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.RegMRDMABuf(ibverbs.DMABuf{FD: fd, Offset: off, Length: size, IOVA: uint64(at)})
		if err := os.NewFile(uintptr(fd), "GPU memory").Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	smr, rmr := register(&p.send.Comm, src+from), register(&p.recv.Comm, dst+to)
	in, ok, err := p.recv.Irecv(rmr.Buffer(0, size, 7))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	var out Request
	for ok = false; !ok; {
		if out, ok, err = p.send.Isend(smr.Buffer(0, size, 7)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(outcome(t, out), outcome(t, in)); err != nil {
		t.Fatal(err)
	}
	flush, ok, err := p.recv.Flush(rmr.Buffer(0, size, 7))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := outcome(t, flush); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, size)
	if err := g.ReadFrom(got, dst+to); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the bytes differ, %v", err)
	}
	if _, err := p.recv.RegMRDMABuf(ibverbs.DMABuf{}); err == nil {
		t.Error("no bytes were registered")
	}
	if err := errors.Join(smr.Close(), smr.Close(), rmr.Close(), g.Free(src), g.Free(dst)); err != nil {
		t.Error(err)
	}
}

// softFabric is two devices on a network in memory.
func softFabric(t *testing.T) *fabric {
	t.Helper()
	soft := softroce.New(softroce.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")},
		Network: softroce.OnSim(softroce.NewSim(softroce.SimConfig{}))})
	f := &fabric{}
	for i, nic := range []*NIC{&f.send, &f.recv} {
		dev, err := ibverbs.Open([]string{"soft0", "soft1"}[i], ibverbs.WithDrivers(soft), ibverbs.WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if left := dev.Objects(); len(left) > 0 {
				t.Errorf("left open: %v", left)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
		*nic = append(*nic, Port{Device: dev})
	}
	return f
}

// A device without DMA-BUF says so, and nothing is left of the rails before it.
func TestDMABufRefused(t *testing.T) {
	p := connect(t, newFabric(t, 2, 2, memdriver.Config{}, nil), Config{}, Config{})
	if m, err := p.send.RegMRDMABuf(ibverbs.DMABuf{FD: 0, Length: 4096}); !errors.Is(err, ibverbs.ErrNotSupported) {
		t.Errorf("%v, %v", m, err)
	}
}
