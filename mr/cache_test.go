//go:build unix

package mr

import (
	"errors"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// fake is a registration that knows whether it is open.
type fake struct {
	world      *fakes
	start, end uint64
	access     ibverbs.Access
	open       bool
	closeErr   error
}

// fakes registers, and counts.
type fakes struct {
	mu         sync.Mutex
	open, made int
	fail       error
	gate       chan struct{} // if not nil, register waits for it
}

func (f *fakes) register(m ibverbs.Memory, a ibverbs.Access) (*fake, error) {
	if f.gate != nil {
		<-f.gate
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	if f.fail != nil {
		return nil, f.fail
	}
	f.open++
	s := m.Span()
	return &fake{world: f, start: s.Addr(), end: s.Addr() + uint64(s.Len()), access: a, open: true}, nil
}

func (r *fake) Close() error {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	if r.closeErr != nil {
		err := r.closeErr
		r.closeErr = nil
		return err
	}
	if !r.open {
		return errors.New("closed twice")
	}
	r.open = false
	r.world.open--
	return nil
}

// TestCacheModel runs random Gets and Closes beside a model that knows which
// users each registration has.
func TestCacheModel(t *testing.T) {
	const size = 64
	buf := alloc(t, size)
	rapid.Check(t, func(t *rapid.T) {
		world := &fakes{}
		x := newIndex(world.register)
		users := map[*fake]int{}
		var shares []*share[*fake]
		drop := func(i int) {
			s := shares[i]
			reg := s.entry.reg
			for range 2 { // the second is nothing
				if err := s.close(); err != nil {
					t.Fatal(err)
				}
			}
			if users[reg]--; users[reg] == 0 {
				delete(users, reg)
			}
			if reg.open != (users[reg] > 0) {
				t.Fatalf("%d users, open: %v", users[reg], reg.open)
			}
			shares = append(shares[:i], shares[i+1:]...)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(shares) > 0 && rapid.IntRange(0, 2).Draw(t, "close") == 0 {
				drop(rapid.IntRange(0, len(shares)-1).Draw(t, "which"))
			} else {
				off := rapid.IntRange(0, size-1).Draw(t, "off")
				n := rapid.IntRange(1, size-off).Draw(t, "n")
				access := rapid.SampledFrom([]ibverbs.Access{ibverbs.LocalWrite, ibverbs.LocalWrite | ibverbs.RemoteWrite}).Draw(t, "access")
				span, err := buf.Span().Slice(off, n)
				if err != nil {
					t.Fatal(err)
				}
				start, end := span.Addr(), span.Addr()+uint64(n)
				known := false
				for reg := range users {
					known = known || reg.access == access && reg.start <= start && end <= reg.end
				}
				made := world.made
				s, err := x.get(memory{span}, access)
				if err != nil {
					t.Fatal(err)
				}
				reg := s.entry.reg
				if known != (world.made == made) {
					t.Fatalf("known: %v, registered: %v", known, world.made != made)
				}
				if !reg.open || reg.access != access || reg.start > start || reg.end < end || reg.start+uint64(s.off) != start || s.n != n {
					t.Fatalf("%#x to %#x is said to be at %d+%d of %+v", start, end, s.off, s.n, *reg)
				}
				users[reg]++
				shares = append(shares, s)
			}
			if world.open != len(users) || x.len() != len(users) {
				t.Fatalf("%d are open, %d in the cache, %d have users", world.open, x.len(), len(users))
			}
			for i := 1; i < len(x.entries); i++ {
				if x.entries[i-1].start > x.entries[i].start {
					t.Fatal("not sorted")
				}
			}
		}
		for len(shares) > 0 {
			drop(0)
		}
		if world.open != 0 {
			t.Fatalf("%d are open", world.open)
		}
	})
}

// TestCacheOnce has many ask for one range while it is being registered.
func TestCacheOnce(t *testing.T) {
	buf := alloc(t, 64)
	for _, fail := range []error{nil, syscall.ENOMEM} {
		world := &fakes{gate: make(chan struct{}), fail: fail}
		x := newIndex(world.register)
		var wg sync.WaitGroup
		shares := make(chan *share[*fake], 10)
		for range cap(shares) {
			wg.Go(func() {
				s, err := x.get(buf, ibverbs.LocalWrite)
				if !errors.Is(err, fail) {
					t.Errorf("%v, want %v", err, fail)
				}
				if s != nil {
					shares <- s
				}
			})
		}
		for x.users() < cap(shares) {
			runtime.Gosched()
		}
		close(world.gate)
		wg.Wait()
		close(shares)
		if world.made != 1 {
			t.Errorf("registered %d times", world.made)
		}
		for s := range shares {
			if err := s.close(); err != nil {
				t.Error(err)
			}
		}
		if x.len() != 0 || world.open != 0 {
			t.Errorf("%d in the cache, %d open", x.len(), world.open)
		}
	}
}

// users is how many wait or share.
func (x *index[R]) users() (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.entries {
		n += e.users
	}
	return n
}

// TestCacheSideBySide registers a range while another is still being
// registered.
func TestCacheSideBySide(t *testing.T) {
	buf := alloc(t, 64)
	slow := &fakes{gate: make(chan struct{})}
	fast := &fakes{}
	x := newIndex(func(m ibverbs.Memory, a ibverbs.Access) (*fake, error) {
		if m.Span().Len() == 10 {
			return slow.register(m, a)
		}
		return fast.register(m, a)
	})
	part := func(off, n int) memory {
		s, err := buf.Span().Slice(off, n)
		if err != nil {
			t.Fatal(err)
		}
		return memory{s}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		s, err := x.get(part(0, 10), 0)
		if err != nil || s.close() != nil {
			t.Error(err)
		}
	})
	s, err := x.get(part(20, 5), 0)
	if err != nil || s.close() != nil {
		t.Error(err)
	}
	close(slow.gate)
	wg.Wait()
}

func TestCacheConcurrent(t *testing.T) {
	buf := alloc(t, 64)
	world := &fakes{}
	x := newIndex(world.register)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				off := (g*7 + i*13) % 60
				span, err := buf.Span().Slice(off, 1+i%(64-off))
				if err != nil {
					t.Error(err)
					return
				}
				s, err := x.get(memory{span}, ibverbs.Access(i%2))
				if err != nil {
					t.Error(err)
					return
				}
				world.mu.Lock()
				open := s.entry.reg.open
				world.mu.Unlock()
				if !open {
					t.Error("a registration was ended under a user")
				}
				if err := s.close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if world.open != 0 || x.len() != 0 {
		t.Errorf("%d open, %d in the cache", world.open, x.len())
	}
}

// TestCacheCloseFails keeps a registration that cannot be ended for another
// Close.
func TestCacheCloseFails(t *testing.T) {
	world := &fakes{}
	x := newIndex(world.register)
	s, err := x.get(alloc(t, 64), 0)
	if err != nil {
		t.Fatal(err)
	}
	s.entry.reg.closeErr = syscall.EBUSY
	if err := s.close(); !errors.Is(err, syscall.EBUSY) || !s.entry.reg.open {
		t.Error(err)
	}
	if err := errors.Join(s.close(), s.close()); err != nil || s.entry.reg.open {
		t.Error(err)
	}
}

// TestCache is the whole over a device.
func TestCache(t *testing.T) {
	pd, mem := domain(t)
	c := NewCache(pd)
	buf := alloc(t, 8192)
	part, err := buf.Slice(100, 50)
	if err != nil {
		t.Fatal(err)
	}
	const access = ibverbs.LocalWrite | ibverbs.RemoteWrite
	whole, err1 := c.Get(buf, access)
	within, err2 := c.Get(part, access)
	other, err3 := c.Get(part, ibverbs.LocalWrite)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if within.MR() != whole.MR() || other.MR() == whole.MR() || c.Len() != 2 {
		t.Errorf("%d registrations", c.Len())
	}
	if within.Offset() != 100 || within.Len() != 50 || within.Addr() != buf.Addr()+100 || within.LKey() != whole.LKey() || within.RKey() != whole.RKey() {
		t.Errorf("%d+%d at %#x", within.Offset(), within.Len(), within.Addr())
	}
	if s := within.SGE(10, 40); s.Addr != buf.Addr()+110 || s.Length != 40 || s.LKey != whole.MR().LKey() {
		t.Errorf("%+v", s)
	}
	if r := within.Remote(50); r.Addr != buf.Addr()+150 || r.RKey != whole.MR().RKey() {
		t.Errorf("%+v", r)
	}
	for name, f := range map[string]func(){
		"SGE":    func() { within.SGE(10, 41) },
		"-1":     func() { within.SGE(-1, 1) },
		"large":  func() { within.SGE(1, 1<<63-1) },
		"Remote": func() { within.Remote(51) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s outside the region did not panic", name)
				}
			}()
			f()
		}()
	}
	if err := errors.Join(part.Close(), buf.Close(), whole.Close(), whole.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	if c.Len() != 1 {
		t.Errorf("%d registrations", c.Len())
	}
	if err := within.Close(); err != nil || c.Len() != 0 {
		t.Errorf("%v, %d registrations", err, c.Len())
	}

	mem.FailNext(memdriver.OpRegMR, syscall.ENOMEM)
	if _, err := c.Get(alloc(t, 10), access); !errors.Is(err, syscall.ENOMEM) || c.Len() != 0 {
		t.Errorf("%v, %d registrations", err, c.Len())
	}
	for _, m := range []ibverbs.Memory{nil, buf} {
		if _, err := c.Get(m, access); err == nil || c.Len() != 0 {
			t.Errorf("%v, %d registrations", err, c.Len())
		}
	}
}

func BenchmarkCacheHit(b *testing.B) {
	x := newIndex((&fakes{}).register)
	buf := alloc(b, 4096)
	s, err := x.get(buf, 0)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := x.get(buf, 0)
		if err != nil || s.close() != nil {
			b.Fatal(err)
		}
	}
	if err := s.close(); err != nil {
		b.Fatal(err)
	}
}
