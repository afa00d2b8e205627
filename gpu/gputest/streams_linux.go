package gputest

import (
	"runtime"
	"sync"

	"github.com/purerdma/purerdma/gpu"
)

// stream runs what is put into it in order, on a goroutine of its own.
type stream struct {
	mu    sync.Mutex
	wake  *sync.Cond
	queue []func()
	end   bool
	ended chan struct{} // work that waits gives up
	done  chan struct{}
}

// event is a mark; nil mark is one that was never recorded.
type event struct {
	mu   sync.Mutex
	mark chan struct{}
}

func newStream() *stream {
	s := &stream{ended: make(chan struct{}), done: make(chan struct{})}
	s.wake = sync.NewCond(&s.mu)
	go s.run()
	return s
}

func (s *stream) run() {
	defer close(s.done)
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.end {
			s.wake.Wait()
		}
		if len(s.queue) == 0 {
			s.mu.Unlock()
			return
		}
		f := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		f()
	}
}

func (s *stream) put(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, f)
	s.wake.Broadcast()
}

// close lets what waits give up, and what was put in run to its end.
func (s *stream) close() {
	s.mu.Lock()
	s.end = true
	s.wake.Broadcast()
	s.mu.Unlock()
	close(s.ended)
	<-s.done
}

func (c *context) NewStream() (gpu.Stream, error) {
	if err := c.enter("NewStream"); err != nil {
		return 0, err
	}
	s := newStream()
	var h gpu.Stream
	h = gpu.Stream(c.keep("streams", 0, func(c *context) {
		c.mu.Lock()
		delete(c.streams, h)
		c.mu.Unlock()
		s.close()
	}))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams == nil {
		c.streams = map[gpu.Stream]*stream{}
	}
	c.streams[h] = s
	return h, nil
}

func (c *context) CloseStream(s gpu.Stream) error {
	if err := c.enter("CloseStream"); err != nil {
		return err
	}
	return c.free("CloseStream", "streams", uint64(s))
}

// on enters a call and puts f into a stream; an error of f breaks the context.
func (c *context) on(call string, s gpu.Stream, f func(*stream) error) error {
	if err := c.enter(call); err != nil {
		return err
	}
	c.mu.Lock()
	st := c.streams[s]
	c.mu.Unlock()
	if st == nil {
		return c.invalid(call, "no such stream; this driver has no stream 0")
	}
	st.put(func() {
		if err := f(st); err != nil {
			c.spoil(err)
		}
	})
	return nil
}

func (c *context) Synchronize(s gpu.Stream) error {
	var reached sync.WaitGroup
	reached.Add(1)
	if err := c.on("Synchronize", s, func(*stream) error { reached.Done(); return nil }); err != nil {
		return err
	}
	reached.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

func (c *context) NewEvent() (gpu.Event, error) {
	if err := c.enter("NewEvent"); err != nil {
		return 0, err
	}
	var h gpu.Event
	h = gpu.Event(c.keep("events", 0, func(c *context) {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.events, h)
	}))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events == nil {
		c.events = map[gpu.Event]*event{}
	}
	c.events[h] = &event{}
	return h, nil
}

func (c *context) CloseEvent(e gpu.Event) error {
	if err := c.enter("CloseEvent"); err != nil {
		return err
	}
	return c.free("CloseEvent", "events", uint64(e))
}

func (c *context) event(call string, e gpu.Event) (*event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ev := c.events[e]; ev != nil {
		return ev, nil
	}
	return nil, &gpu.Error{Call: call, Name: "INVALID_HANDLE", Code: 400, Device: c.info.Index}
}

func (c *context) Record(e gpu.Event, s gpu.Stream) error {
	ev, err := c.event("Record", e)
	if err != nil {
		return err
	}
	mark := make(chan struct{})
	if err := c.on("Record", s, func(*stream) error { close(mark); return nil }); err != nil {
		return err
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	ev.mark = mark
	return nil
}

func (ev *event) last() chan struct{} {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	return ev.mark
}

func (c *context) Done(e gpu.Event) (bool, error) {
	if err := c.enter("Done"); err != nil {
		return false, err
	}
	ev, err := c.event("Done", e)
	if err != nil {
		return false, err
	}
	mark := ev.last()
	if mark == nil {
		return true, nil
	}
	select {
	case <-mark:
		return true, nil
	default:
		return false, nil
	}
}

func (c *context) Wait(s gpu.Stream, e gpu.Event) error {
	ev, err := c.event("Wait", e)
	if err != nil {
		return err
	}
	mark := ev.last()
	return c.on("Wait", s, func(st *stream) error {
		if mark != nil {
			select {
			case <-mark:
			case <-st.ended:
			}
		}
		return nil
	})
}

func (c *context) Copy(dst, src gpu.Ptr, n int, s gpu.Stream) error {
	return c.on("Copy", s, func(*stream) error {
		to := uint64(dst)
		there := true
		if !c.d.space.each(uint64(src), n, func(from []byte) {
			rest := from
			there = there && c.d.space.each(to, len(from), func(b []byte) { rest = rest[copy(b, rest):] })
			to += uint64(len(from))
		}) || !there {
			return illegal("Copy", c.info.Index, uint64(src), n)
		}
		return nil
	})
}

func (c *context) Fill(p gpu.Ptr, v byte, n int, s gpu.Stream) error {
	return c.on("Fill", s, func(*stream) error {
		if !c.d.space.each(uint64(p), n, func(b []byte) {
			for i := range b {
				b[i] = v
			}
		}) {
			return illegal("Fill", c.info.Index, uint64(p), n)
		}
		return nil
	})
}

// word is the 32 bits at p.
func (c *context) word(call string, p gpu.Ptr) ([]byte, error) {
	sp, ok := c.d.space.find(uint64(p))
	if at := uint64(p) - sp.at; ok && p%4 == 0 && at+4 <= uint64(len(sp.bytes)) {
		return sp.bytes[at : at+4], nil
	}
	return nil, illegal(call, c.info.Index, uint64(p), 4)
}

func (c *context) WriteWord(s gpu.Stream, p gpu.Ptr, v uint32) error {
	return c.on("WriteWord", s, func(*stream) error {
		b, err := c.word("WriteWord", p)
		if err == nil {
			store32(b, v)
		}
		return err
	})
}

func (c *context) WaitWord(s gpu.Stream, p gpu.Ptr, v uint32) error {
	return c.on("WaitWord", s, func(st *stream) error {
		b, err := c.word("WaitWord", p)
		if err != nil {
			return err
		}
		for int32(load32(b)-v) < 0 {
			select {
			case <-st.ended:
				return nil
			default:
				runtime.Gosched()
			}
		}
		return nil
	})
}

func (c *context) Load(_ []byte, names ...string) (gpu.Module, []gpu.Function, error) {
	if err := c.enter("Load"); err != nil {
		return 0, nil, err
	}
	c.mu.Lock()
	var fs []gpu.Function
	for _, name := range names {
		k := c.d.config.Kernels[name]
		if k == nil {
			c.mu.Unlock()
			return 0, nil, &gpu.Error{Call: "Load", Name: "NOT_FOUND", Code: 500, Device: c.info.Index, Detail: "function " + name}
		}
		c.seq++
		if c.kernels == nil {
			c.kernels = map[gpu.Function]Kernel{}
		}
		c.kernels[gpu.Function(c.seq)] = k
		fs = append(fs, gpu.Function(c.seq))
	}
	c.mu.Unlock()
	m := c.keep("modules", 0, func(c *context) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, f := range fs {
			delete(c.kernels, f)
		}
	})
	return gpu.Module(m), fs, nil
}

func (c *context) Unload(m gpu.Module) error {
	if err := c.enter("Unload"); err != nil {
		return err
	}
	return c.free("Unload", "modules", uint64(m))
}

func (c *context) Launch(l gpu.Launch) error {
	c.mu.Lock()
	k := c.kernels[l.F]
	c.mu.Unlock()
	if k == nil {
		return &gpu.Error{Call: "Launch", Name: "INVALID_HANDLE", Code: 400, Device: c.info.Index}
	}
	l.Params = append([]byte(nil), l.Params...)
	return c.on("Launch", l.Stream, func(st *stream) error {
		return k(Machine{d: c.d, device: c.info.Index, ended: st.ended}, l)
	})
}
