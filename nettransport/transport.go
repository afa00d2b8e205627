package nettransport

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/socketboot"
)

// Handle is where a Listener waits, 128 bytes, NCCL's net handle.
type Handle = socketboot.Handle

// Transport owns the logical NICs: the protection domains of their devices, and what is registered there. Its methods may be
// called from any goroutine.
type Transport struct {
	cfg     Config
	log     *slog.Logger
	nics    []*nic
	devices []*device

	mu       sync.Mutex
	closed   bool
	children map[any]string // what must be closed before the Transport, and its name
}

// New finds or checks the devices of the logical NICs. Without any that can be used the error says what each lacks. The caller
// closes the Transport.
func New(c Config) (*Transport, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Transport{cfg: c, log: c.Log, children: map[any]string{}}
	if c.NICs == nil {
		err = t.find()
	} else {
		err = t.adopt(c.NICs)
	}
	if err != nil {
		t.closeDevices()
		return nil, err
	}
	for _, d := range t.devices {
		d.watch()
	}
	return t, nil
}

// NICs describes the logical NICs; Listen and Connect take their index.
func (t *Transport) NICs() []Properties {
	props := make([]Properties, len(t.nics))
	for i, n := range t.nics {
		props[i] = n.properties()
	}
	return props
}

// Listen waits for peers that will send over this NIC. ctx bounds this call only. The caller closes the Listener.
func (t *Transport) Listen(ctx context.Context, nic int) (*Listener, error) {
	return t.listen(ctx, nic, false)
}

func (t *Transport) listen(ctx context.Context, nic int, flushes bool) (*Listener, error) {
	n, err := t.nic("listen", nic)
	if err != nil {
		return nil, err
	}
	l := &Listener{t: t, flushes: flushes}
	if l.l, err = t.cfg.Net.Serve(ctx, l.local(n)); err != nil {
		return nil, err
	}
	h := l.Handle()
	if err := t.adoptChild("listen", l, "listener at "+h.Addr().String()); err != nil {
		_ = l.l.Close()
		return nil, err
	}
	return l, nil
}

// Connect opens the connection to the listener of h, over which this end will send. It blocks until the peer is ready, ctx ends
// or a deadline of Config.Net does. The caller closes the SendComm.
func (t *Transport) Connect(ctx context.Context, nic int, h Handle) (*SendComm, error) {
	n, err := t.nic("connect", nic)
	if err != nil {
		return nil, err
	}
	c := newSendComm(t, n)
	addr := h.Addr()
	if err := t.adoptChild("connect", &c.Comm, "connection to "+addr.String()); err != nil {
		return nil, err
	}
	conn, err := t.cfg.Net.Connect(ctx, h, (*connector)(c))
	if err != nil {
		t.forget(&c.Comm)
		return nil, err
	}
	c.attach(conn)
	return c, nil
}

// Start is Connect in the background: poll Pending.Comm. The caller closes the Pending, or takes its connection and closes that.
func (t *Transport) Start(nic int, h Handle) (*Pending, error) {
	if _, err := t.nic("connect", nic); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Pending{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.comm, p.err = t.Connect(ctx, nic, h)
	}()
	return p, nil
}

// Close frees the protection domains and the devices that New opened. It is ErrBusy, names them and changes nothing while
// listeners or connections are open. A second Close is nil.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	if len(t.children) > 0 {
		names := slices.Sorted(maps.Values(t.children))
		t.mu.Unlock()
		return &ibverbs.Error{Op: "close transport", Object: strings.Join(names, ", "), Err: ErrBusy, Hint: "close what is open first"}
	}
	t.closed = true
	t.mu.Unlock()
	return t.closeDevices()
}

func (t *Transport) nic(op string, i int) (*nic, error) {
	if i < 0 || i >= len(t.nics) {
		return nil, &ibverbs.Error{Op: op, Object: fmt.Sprintf("NIC %d", i), Err: ibverbs.ErrNoDevice,
			Hint: fmt.Sprintf("NICs count from 0 to %d", len(t.nics)-1)}
	}
	return t.nics[i], nil
}

func (t *Transport) adoptChild(op string, c any, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return &ibverbs.Error{Op: op, Object: "transport", Err: ErrClosed}
	}
	t.children[c] = name
	return nil
}

func (t *Transport) forget(c any) {
	t.mu.Lock()
	delete(t.children, c)
	t.mu.Unlock()
}
