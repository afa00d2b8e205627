package transport

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/purerdma/purerdma/transport/driver"
)

// Proxy moves the data of a connector whose ends do not share memory.
type Proxy = driver.Proxy

// Op is one operation of a Proxy.
type Op = driver.Op

// Engine moves the data of connectors that have a Proxy: NCCL's progress thread, as one goroutine. It runs all proxies with operations
// under way round by round; when nothing moves it yields, then sleeps, up to a millisecond; without operations it waits.
type Engine struct {
	mu     sync.Mutex
	inbox  []task
	wake   chan struct{} // holds a token while there is something new
	closed bool
	done   chan struct{}

	active []*running // the goroutine's
}

// task is what the goroutine is asked for.
type task struct {
	proxy Proxy
	op    Op
	ended func(error) // of an operation
	drop  chan struct{}
}

// running is a proxy with operations under way, and who is told of their ends.
type running struct {
	proxy Proxy
	ended []func(error)
}

// errDropped is why an operation ended whose proxy was taken from the engine.
var errDropped = errors.New("the connection was taken from the engine")

// NewEngine starts an engine. Its owner closes it.
func NewEngine() *Engine {
	e := &Engine{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go e.run()
	return e
}

var errNoProxy = errors.New("transport: engine: the proxy is nil")

// Start gives a proxy an operation. It does not wait; ended is called once, from the engine's goroutine, and must not wait either: with nil
// when the operation is done, or why it will not be.
func (e *Engine) Start(p Proxy, op Op, ended func(error)) {
	if ended == nil {
		ended = func(error) {}
	}
	if p == nil {
		ended(errNoProxy)
		return
	}
	if !e.ask(task{proxy: p, op: op, ended: ended}) {
		ended(fmt.Errorf("transport: engine: %w", ErrClosed))
	}
}

// Drop makes the engine let go of a proxy, and returns when it has, so that its connector can be closed. Its operations end with an error.
func (e *Engine) Drop(p Proxy) {
	o := task{proxy: p, drop: make(chan struct{})}
	if e.ask(o) {
		<-o.drop
	}
}

// Close ends all operations with ErrClosed and the goroutine. A second call is nil.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.nudge()
	<-e.done
	return nil
}

func (e *Engine) ask(o task) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.inbox = append(e.inbox, o)
	e.nudge()
	return true
}

func (e *Engine) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *Engine) run() {
	defer close(e.done)
	const rounds, longest = 64, time.Millisecond
	pause, quiet := time.Duration(0), 0
	for {
		if !e.takeOrders() {
			return
		}
		if len(e.active) == 0 {
			<-e.wake
			continue
		}
		if e.round() {
			pause, quiet = 0, 0
			continue
		}
		if quiet++; quiet < rounds {
			runtime.Gosched()
			continue
		}
		pause = min(max(2*pause, 10*time.Microsecond), longest)
		select {
		case <-e.wake:
		case <-time.After(pause):
		}
	}
}

// round lets every proxy move what it can; false if nothing has moved.
func (e *Engine) round() (moved bool) {
	e.active = slices.DeleteFunc(e.active, func(r *running) bool {
		idle, err := r.proxy.Progress()
		if err != nil {
			r.end(err)
			return true
		}
		for left := r.proxy.Pending(); len(r.ended) > left; r.ended = r.ended[1:] {
			r.ended[0](nil)
		}
		moved = moved || !idle
		return len(r.ended) == 0
	})
	return moved
}

func (r *running) end(err error) {
	for _, ended := range r.ended {
		ended(err)
	}
	r.ended = nil
}

// takeOrders is false when the engine is closed.
func (e *Engine) takeOrders() bool {
	e.mu.Lock()
	orders, closed := e.inbox, e.closed
	e.inbox = nil
	e.mu.Unlock()
	for _, o := range orders {
		at := slices.IndexFunc(e.active, func(r *running) bool { return r.proxy == o.proxy })
		if o.drop != nil {
			if at >= 0 {
				e.active[at].end(fmt.Errorf("transport: engine: %w", errDropped))
				e.active = slices.Delete(e.active, at, at+1)
			}
			close(o.drop)
			continue
		}
		if err := o.proxy.Start(o.op); err != nil {
			o.ended(err)
			continue
		}
		if at < 0 {
			e.active = append(e.active, &running{proxy: o.proxy})
			at = len(e.active) - 1
		}
		e.active[at].ended = append(e.active[at].ended, o.ended)
	}
	if closed {
		for _, r := range e.active {
			r.end(fmt.Errorf("transport: engine: %w", ErrClosed))
		}
	}
	return !closed
}
