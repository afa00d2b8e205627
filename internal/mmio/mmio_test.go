package mmio

import (
	"runtime"
	"sync"
	"testing"
)

// TestWidth sees that a store changes its own bytes and no others, and that a
// load gives them back.
func TestWidth(t *testing.T) {
	words := (*[4]uint64)(page(t))
	halves := halves(words)
	const all, v64, v32 = ^uint64(0), 0x0123456789abcdef, 0x89abcdef

	for name, store := range map[string]func(*uint64, uint64){"StoreRelease64": StoreRelease64, "Store64": Store64} {
		*words = [4]uint64{all, all, all, all}
		store(&words[1], v64)
		if want := [4]uint64{all, v64, all, all}; *words != want {
			t.Errorf("%s: %#x, want %#x", name, *words, want)
		}
		if got := LoadAcquire64(&words[1]); got != v64 {
			t.Errorf("LoadAcquire64 = %#x, want %#x", got, uint64(v64))
		}
	}
	eight := (*[8]uint64)(page(t))
	*eight = [8]uint64{v64, 7, 6, 5, 4, 3, 2, all}
	three := (*[24]uint64)(page(t))
	CopyBlock((*[8]uint64)(three[8:16]), eight)
	if got := [8]uint64(three[8:16]); got != *eight || three[7] != 0 || three[16] != 0 {
		t.Errorf("CopyBlock made %#x", three)
	}
	for name, store := range map[string]func(*uint32, uint32){"StoreRelease32": StoreRelease32, "Store32": Store32} {
		for i := range halves {
			*words = [4]uint64{all, all, all, all}
			store(&halves[i], v32)
			for j, got := range halves {
				want := ^uint32(0)
				if j == i {
					want = v32
				}
				if got != want {
					t.Errorf("%s of half %d: half %d is %#x, want %#x", name, i, j, got, want)
				}
			}
			if got := LoadAcquire32(&halves[i]); got != v32 {
				t.Errorf("LoadAcquire32 = %#x, want %#x", got, uint32(v32))
			}
		}
	}
}

// TestMessagePassing is the litmus test of that name: whoever sees the flag
// sees the message. The message is on other cache lines, so that a processor
// with weak order would get the chance to fail.
func TestMessagePassing(t *testing.T) {
	const rounds = 20000
	type ring struct {
		flag uint64
		_    [120]byte
		msg  [4]struct {
			v uint64
			_ [120]byte
		}
		_   [128]byte
		ack uint64
	}
	tests := []struct {
		name    string
		publish func(*uint64, uint64)
		seen    func(*uint64) uint64
	}{
		{"release and acquire", StoreRelease64, LoadAcquire64},
		{"fences", func(p *uint64, v uint64) { StoreFence(); Store64(p, v) },
			func(p *uint64) uint64 { v := LoadAcquire64(p); LoadFence(); return v }},
		{"full fence", func(p *uint64, v uint64) { FullFence(); Store64(p, v) },
			func(p *uint64) uint64 { v := LoadAcquire64(p); FullFence(); return v }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := (*ring)(page(t))
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := uint64(1); i <= rounds; i++ {
					for j := range r.msg {
						r.msg[j].v = i
					}
					tt.publish(&r.flag, i)
					for LoadAcquire64(&r.ack) != i {
						runtime.Gosched()
					}
				}
			})
			bad := 0
			for i := uint64(1); i <= rounds; i++ {
				for tt.seen(&r.flag) != i {
					runtime.Gosched()
				}
				for j := range r.msg {
					if r.msg[j].v != i {
						bad++
					}
				}
				StoreRelease64(&r.ack, i)
			}
			wg.Wait()
			if bad > 0 {
				t.Errorf("%d words were old when their flag was seen", bad)
			}
		})
	}
}

func TestNoAllocations(t *testing.T) {
	p := (*uint64)(page(t))
	if n := testing.AllocsPerRun(100, func() {
		StoreRelease64(p, LoadAcquire64(p)+1)
		StoreFence()
		Store64(p, 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkStoreRelease64(b *testing.B) {
	p := (*uint64)(page(b))
	for i := uint64(0); b.Loop(); i++ {
		StoreRelease64(p, i)
	}
}

func BenchmarkStoreFence(b *testing.B) {
	p := (*uint64)(page(b))
	for i := uint64(0); b.Loop(); i++ {
		Store64(p, i)
		StoreFence()
	}
}
