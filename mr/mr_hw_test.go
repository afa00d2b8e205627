//go:build hw && linux

package mr_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/lab"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
)

// TestHWMemory writes by RDMA from and to each kind of memory.
func TestHWMemory(t *testing.T) {
	const size, huge = 3 << 20, 2 << 20
	if lab.Inside() {
		reserve := func(n string) {
			if err := os.WriteFile("/proc/sys/vm/nr_hugepages", []byte(n), 0); err != nil {
				t.Error(err)
			}
		}
		reserve("8")
		t.Cleanup(func() { reserve("0") })
	}
	at, _ := hwtest.Pair(t, true)
	dev, err := ibverbs.Open(at.Device)
	if err != nil {
		t.Fatal(err)
	}
	pd, err1 := dev.AllocPD()
	cq, err2 := dev.CreateCQ(16)
	q, err3 := qp.New(pd, cq, cq, qp.WithPort(at.Port), qp.WithGIDIndex(at.GID.Index))
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := q.Connect(q.Info()); err != nil {
		t.Fatal(err)
	}
	file := func() (*mr.Buffer, error) {
		f, err := os.Create(filepath.Join("/dev/shm", "purerdma-hw"))
		if err != nil {
			return nil, err
		}
		defer func() { _ = errors.Join(f.Close(), os.Remove(f.Name())) }()
		if err := f.Truncate(size); err != nil {
			return nil, err
		}
		return mr.MapFile(int(f.Fd()), 0, size, mr.WithPopulate())
	}
	cache := mr.NewCache(pd)
	for _, kind := range []struct {
		name string
		make func() (*mr.Buffer, error)
	}{
		{"ordinary pages", func() (*mr.Buffer, error) { return mr.Alloc(size) }},
		{"huge pages", func() (*mr.Buffer, error) { return mr.Alloc(size, mr.WithHugePagesIfAvailable(huge)) }},
		{"populated", func() (*mr.Buffer, error) { return mr.Alloc(size, mr.WithPopulate()) }},
		{"file in /dev/shm", file},
	} {
		t.Run(kind.name, func(t *testing.T) {
			buf, err := kind.make()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("pages of %d bytes, %v", buf.PageSize(), buf.WhyOrdinaryPages())
			if why := buf.WhyOrdinaryPages(); lab.Inside() && why != nil {
				t.Error(why)
			}
			whole, err := cache.Get(buf, ibverbs.LocalWrite|ibverbs.RemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			const from, to, n = 1<<20 + 77, 2<<20 - 100, 30000 // across a huge page's edge
			part, err := buf.Slice(from, n)
			if err != nil {
				t.Fatal(err)
			}
			shared, err := cache.Get(part, ibverbs.LocalWrite|ibverbs.RemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			for i := range part.Bytes() {
				part.Bytes()[i] = byte(i * 7)
			}
			if _, err := q.PostSend(ibverbs.SendWR{Op: ibverbs.OpWrite, Flags: ibverbs.Signaled, SGL: []ibverbs.SGE{shared.SGE(0, n)}, Remote: whole.Remote(to)}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var wcs [1]ibverbs.WC
			if _, err := cq.Wait(ctx, wcs[:]); err != nil {
				t.Fatal(err)
			}
			if err := cq.Err(&wcs[0]); err != nil {
				t.Fatal(err)
			}
			for i, b := range buf.Bytes()[to : to+n] {
				if b != byte(i*7) {
					t.Fatalf("byte %d is %#x", i, b)
				}
			}
			if err := errors.Join(buf.Close(), whole.Close(), shared.Close(), part.Close()); err != nil || cache.Len() != 0 {
				t.Errorf("%v, %d registrations", err, cache.Len())
			}
		})
	}
}
