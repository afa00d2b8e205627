package ibverbs

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// Context is an open device, and the owner of all that is made from it. Its
// variables are best named dev; ctx is for context.Context. Close it when done:
// the collector does not.
type Context struct{ *device }

// device is what objects and the event goroutine hold, so that a Context that a
// program dropped without Close can be told.
type device struct {
	d    driver.Context
	info DeviceInfo
	tree tree
	// life keeps d open during calls on it; Close takes it for writing.
	life   sync.RWMutex
	closed bool
	events events
	gids   gidCache
	log    *slog.Logger
	// qpNumbers is held while a QP is made, and from a Close until the QP's
	// completions are gone: the kernel gives numbers again at once.
	qpNumbers  sync.Mutex
	lost       atomic.Bool // the device is gone
	background background
}

func newContext(dc driver.Context, info DeviceInfo, log *slog.Logger) *Context {
	v := &device{d: dc, info: info, log: log}
	v.tree.init()
	v.gids.init()
	v.events.start(v)
	c := &Context{v}
	runtime.AddCleanup(c, func(v *device) {
		v.life.RLock()
		defer v.life.RUnlock()
		if !v.closed {
			v.log.Warn("RDMA device was dropped without Close; it stays open", "device", v.info.Name)
		}
	}, v)
	return c
}

// Info is a snapshot of when the device was found.
func (v *device) Info() DeviceInfo { return v.info }

// use runs f while the device is open.
func (v *device) use(op, object string, f func() error) error {
	v.life.RLock()
	defer v.life.RUnlock()
	if v.closed {
		return &Error{Op: op, Device: v.info.Name, Object: object, Err: driver.ErrClosed}
	}
	return wrap(op, v.info.Name, object, f())
}

func portName(port int) string { return fmt.Sprintf("port %d", port) }

// Query asks the device for its limits.
func (v *device) Query() (a DeviceAttr, err error) {
	err = v.use("query device", "", func() (err error) { a, err = v.d.QueryDevice(); return })
	return a, err
}

// Port asks the device for the state of a port, numbered from 1.
func (v *device) Port(port int) (a PortAttr, err error) {
	if err := v.checkPort("query port", port); err != nil {
		return a, err
	}
	err = v.use("query port", portName(port), func() (err error) { a, err = v.d.QueryPort(port); return })
	return a, err
}

// GIDs is the used slots of a port's table, by rising index. It is read once
// and again after the device reports a change; the caller owns the slice.
func (v *device) GIDs(port int) (gids []GIDEntry, err error) {
	if err := v.checkPort("query GID table", port); err != nil {
		return nil, err
	}
	err = v.use("query GID table", portName(port), func() (err error) {
		gids, err = v.gids.get(port, func() ([]GIDEntry, error) { return v.d.GIDs(port) })
		return err
	})
	return gids, err
}

func (v *device) checkPort(op string, port int) error {
	if port >= 1 && port <= v.info.Ports {
		return nil
	}
	return &Error{Op: op, Device: v.info.Name, Object: portName(port), Err: errNoPort,
		Hint: fmt.Sprintf("ports are numbered from 1 to %d", v.info.Ports)}
}

// Probe is nil if the feature works here, else a *NotSupportedError that says
// whether the device, the kernel, the driver or a right of the process is
// missing.
func (v *device) Probe(f Feature) error {
	return v.use("probe "+string(f), "", func() error { return v.d.Probe(f) })
}

// AllocPD makes a protection domain.
func (v *device) AllocPD() (*PD, error) {
	p := &PD{dev: v}
	err := v.create("allocate PD", rankPD, "PD", nil, func(n *node) (string, func() error, error) {
		d, err := v.d.AllocPD()
		p.d, p.n = d, n
		return "", p.destroy, err
	}, p)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// CreateCompChannel makes a completion channel, for programs that wait for many
// CQs at once.
func (v *device) CreateCompChannel() (*CompChannel, error) {
	ch := newCompChannel(v)
	err := v.create("create completion channel", rankChannel, "completion channel", nil, func(n *node) (string, func() error, error) {
		d, err := v.d.CreateCompChannel()
		ch.d, ch.n = d, n
		return "", ch.destroy, err
	}, ch)
	if err != nil {
		return nil, err
	}
	return ch, nil
}

// create makes an object and enters it into the tree. build fills the object's
// fields and returns its name, "" for the kind and a number, and its destroyer.
func (v *device) create(op string, rank int, kind string, parents []*node, build func(*node) (string, func() error, error), object any) error {
	n, err := v.tree.reserve(rank, kind, parents...)
	if err != nil {
		return &Error{Op: op, Device: v.info.Name, Err: err}
	}
	name, destroy, err := build(n)
	if err != nil {
		n.abandon()
		return wrap(op, v.info.Name, "", err)
	}
	n.commit(name, object, destroy)
	if v.lost.Load() {
		tellQPs(v.tellGone(object), driver.ErrDeviceGone)
	}
	return nil
}

// closeNode closes an object for its Close method.
func (v *device) closeNode(op string, n *node) error {
	return wrap(op, v.info.Name, n.name, n.close())
}

// Objects names what is open, children first. Tests want none at the end.
func (v *device) Objects() []string {
	nodes := v.tree.list()
	names := make([]string, len(nodes))
	v.tree.mu.Lock()
	defer v.tree.mu.Unlock()
	for i, n := range nodes {
		names[i] = n.name
	}
	return names
}

// Subscribe returns a new subscription to the asynchronous events from now on.
// The caller closes it.
func (v *device) Subscribe() *Subscription { return v.events.subscribe(v.info.Name) }

// Close closes everything that was made from the device and then the device.
// Calls that wait return ErrClosed. The second Close is nil.
func (c *Context) Close() error {
	err := c.close()
	runtime.KeepAlive(c) // a deferred Close keeps a Context from being taken for dropped
	return err
}

func (v *device) close() error {
	errAll := v.tree.closeAll()
	v.life.Lock()
	defer v.life.Unlock()
	if v.closed {
		return nil
	}
	v.closed = true
	v.events.stop()
	v.background.close()
	return wrap("close", v.info.Name, "", errors.Join(errAll, v.d.Close()))
}

// gidCache remembers the GID tables. A change that is told while a table is
// being read makes that reading count for nothing.
type gidCache struct {
	mu     sync.Mutex
	tables map[int][]GIDEntry
	era    uint64
	stale  bool // nobody tells of changes any more, so nothing is remembered
}

func (g *gidCache) init() { g.tables = map[int][]GIDEntry{} }

func (g *gidCache) get(port int, read func() ([]GIDEntry, error)) ([]GIDEntry, error) {
	g.mu.Lock()
	if t, ok := g.tables[port]; ok {
		defer g.mu.Unlock()
		return append([]GIDEntry(nil), t...), nil
	}
	era := g.era
	g.mu.Unlock()
	t, err := read()
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	if g.era == era && !g.stale {
		g.tables[port] = append([]GIDEntry(nil), t...)
	}
	g.mu.Unlock()
	return t, nil
}

func (g *gidCache) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.era++
	clear(g.tables)
}

func (g *gidCache) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stale = true
	clear(g.tables)
}
