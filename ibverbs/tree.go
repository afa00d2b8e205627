package ibverbs

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// tree is the objects of one open device and who uses whom. Its lock is held
// for bookkeeping only, never while the device works.
type tree struct {
	mu      sync.Mutex
	settled *sync.Cond // pending fell to zero
	pending int        // objects being made
	closing bool
	seq     uint64
	nodes   map[uint64]*node
}

// node is one object in the tree. Its id is the cookie that comes back in
// events.
type node struct {
	t       *tree
	id      uint64
	rank    int // children have a lower one; Context.Close goes by it
	name    string
	object  any
	parents []*node
	users   map[*node]struct{}
	shut    bool // closed, or being closed: nothing may be made from it
	closeMu sync.Mutex
	destroy func() error
}

// Ranks, in the order in which a Context closes its objects.
const (
	rankQP = iota
	rankMW
	rankMR
	rankAH
	rankSRQ
	rankCQ
	rankChannel
	rankPD
)

func (t *tree) init() {
	t.settled = sync.NewCond(&t.mu)
	t.nodes = map[uint64]*node{}
}

// reserve enters an object that is about to be made, so that none of its
// parents can be closed meanwhile. It must be followed by commit or abandon.
func (t *tree) reserve(rank int, kind string, parents ...*node) (*node, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return nil, driver.ErrClosed
	}
	for _, p := range parents {
		if p.shut {
			return nil, driver.ErrClosed
		}
	}
	t.seq++
	n := &node{t: t, id: t.seq, rank: rank, name: fmt.Sprintf("%s #%d", kind, t.seq), parents: parents,
		users: map[*node]struct{}{}, shut: true}
	for _, p := range parents {
		p.users[n] = struct{}{}
	}
	t.pending++
	return n, nil
}

// commit opens a reserved object. destroy runs once, outside the lock. If it
// fails with EBUSY, it must have left the object as it was.
func (n *node) commit(name string, object any, destroy func() error) {
	n.t.mu.Lock()
	defer n.t.mu.Unlock()
	if name != "" {
		n.name = name
	}
	n.object, n.destroy, n.shut = object, destroy, false
	n.t.nodes[n.id] = n
	n.t.settle()
}

// label is the name of the object, "" for one that no device has made.
func (n *node) label() string {
	if n == nil {
		return ""
	}
	return n.name
}

// rename changes the name by which errors know the object.
func (n *node) rename(name string) {
	n.t.mu.Lock()
	defer n.t.mu.Unlock()
	n.name = name
}

// move begins to put an object under another parent, which cannot be closed meanwhile;
// neither can the one before. The function that it returns ends that: moved, or not.
func (n *node) move(to *node) (func(moved bool), error) {
	n.t.mu.Lock()
	defer n.t.mu.Unlock()
	if to.shut {
		return nil, driver.ErrClosed
	}
	from := n.parents
	if len(from) == 1 && from[0] == to {
		return func(bool) {}, nil
	}
	to.users[n] = struct{}{}
	return func(moved bool) {
		n.t.mu.Lock()
		defer n.t.mu.Unlock()
		left := from
		if moved {
			n.parents = []*node{to}
		} else {
			left = []*node{to}
		}
		for _, p := range left {
			delete(p.users, n)
		}
	}, nil
}

// abandon drops a reserved object that could not be made.
func (n *node) abandon() {
	n.t.mu.Lock()
	defer n.t.mu.Unlock()
	n.leave()
	n.t.settle()
}

func (t *tree) settle() {
	if t.pending--; t.pending == 0 {
		t.settled.Broadcast()
	}
}

func (n *node) leave() {
	for _, p := range n.parents {
		delete(p.users, n)
	}
	delete(n.t.nodes, n.id)
}

// close destroys the object. The second call waits for the first and is nil.
func (n *node) close() error {
	n.closeMu.Lock()
	defer n.closeMu.Unlock()
	n.t.mu.Lock()
	if n.shut {
		n.t.mu.Unlock()
		return nil
	}
	if len(n.users) > 0 {
		names := make([]string, 0, len(n.users))
		for u := range n.users {
			names = append(names, u.name)
		}
		n.t.mu.Unlock()
		return fmt.Errorf("%s: %w", list(names), driver.ErrBusy)
	}
	n.shut = true
	n.t.mu.Unlock()

	err := n.destroy()

	n.t.mu.Lock()
	defer n.t.mu.Unlock()
	if errors.Is(err, syscall.EBUSY) {
		n.shut = false
		return err
	}
	n.leave()
	if errors.Is(err, syscall.EIO) {
		return nil // the device is gone, and the object with it
	}
	return err
}

// closeAll closes every object, children first, and lets no more be made.
func (t *tree) closeAll() error {
	t.mu.Lock()
	t.closing = true
	for t.pending > 0 {
		t.settled.Wait()
	}
	t.mu.Unlock()
	var errs []error
	for _, n := range t.list() {
		if err := n.close(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", n.name, err))
		}
	}
	return errors.Join(errs...)
}

// list is the open objects, children before their parents.
func (t *tree) list() []*node {
	t.mu.Lock()
	defer t.mu.Unlock()
	nodes := make([]*node, 0, len(t.nodes))
	for _, n := range t.nodes {
		nodes = append(nodes, n)
	}
	sort.Slice(nodes, func(i, j int) bool {
		if nodes[i].rank != nodes[j].rank {
			return nodes[i].rank < nodes[j].rank
		}
		return nodes[i].id < nodes[j].id
	})
	return nodes
}

// find is the object with this cookie, nil if it has been closed.
func (t *tree) find(id uint64) any {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.nodes[id]; n != nil {
		return n.object
	}
	return nil
}

// list names up to five things and counts the rest.
func list(names []string) string {
	sort.Strings(names)
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
