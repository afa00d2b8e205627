package p2ptransport

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/purerdma/purerdma/gpu"
)

// piece is one end's memory on its GPU, for both ends.
type piece struct {
	c      gpu.Context // a hold of its own: a peer of this process may outlive the owner
	ptr    gpu.Ptr
	size   int
	kind   kind
	handle gpu.IPCHandle
	alloc  gpu.Allocation // of kind descriptor
	mapped int            // size of the mapping, a multiple of the granularity
	token  uint64

	links  []*net.UnixConn // guests that were given it; the door's lock
	guests sync.WaitGroup  // that are being given it; added to under the door's lock

	mu    sync.Mutex
	users int // this end, and peers of this process
}

// table finds pieces of this process by their tokens.
var table struct {
	sync.Mutex
	pieces map[uint64]*piece
}

// newPiece allocates and clears a piece.
func newPiece(d gpu.Driver, device, size int, k kind) (_ *piece, err error) {
	c, err := d.Open(device)
	if err != nil {
		return nil, err
	}
	p := &piece{c: c, size: size, kind: k, users: 1}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%d bytes of GPU memory for a connection: %w", size, err), p.free())
		}
	}()
	if k == descriptor {
		err = p.create()
	} else {
		err = p.allocate()
	}
	if err != nil {
		return nil, err
	}
	if err := p.clear(); err != nil {
		return nil, err
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	p.token = binary.LittleEndian.Uint64(b[:])
	table.Lock()
	defer table.Unlock()
	if table.pieces == nil {
		table.pieces = map[uint64]*piece{}
	}
	table.pieces[p.token] = p
	return p, nil
}

func (p *piece) create() error {
	unit, err := p.c.Granularity()
	if err != nil {
		return err
	}
	n := (p.size + unit - 1) / unit * unit
	if p.alloc, err = p.c.Create(n, true); err != nil {
		return err
	}
	p.ptr, err = mapAll(p.c, p.alloc, n)
	if err == nil {
		p.mapped = n
	}
	return err
}

// mapAll gives an allocation an address.
func mapAll(c gpu.Context, a gpu.Allocation, n int) (gpu.Ptr, error) {
	at, err := c.Reserve(n)
	if err != nil {
		return 0, err
	}
	if err := c.Map(at, n, a); err != nil {
		return 0, errors.Join(err, c.Unreserve(at, n))
	}
	return at, nil
}

func unmapAll(c gpu.Context, at gpu.Ptr, n int) error {
	return errors.Join(c.Unmap(at, n), c.Unreserve(at, n))
}

func (p *piece) allocate() (err error) {
	if p.ptr, err = p.c.Alloc(p.size); err != nil {
		return err
	}
	if p.kind == legacy {
		p.handle, err = p.c.IPCHandle(p.ptr)
	}
	return err
}

// clear makes all steps 0 and no line of LL valid.
func (p *piece) clear() error {
	s, err := p.c.NewStream()
	if err != nil {
		return err
	}
	return errors.Join(p.c.Fill(p.ptr, 0, p.size, s), p.c.Synchronize(s), p.c.CloseStream(s))
}

// find is a piece of this process, kept until it is left.
func find(token uint64) *piece {
	table.Lock()
	p := table.pieces[token]
	table.Unlock()
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users == 0 {
		return nil
	}
	p.users++
	return p
}

// leave gives the piece back; the last frees it.
func (p *piece) leave() error {
	p.mu.Lock()
	p.users--
	last := p.users == 0
	p.mu.Unlock()
	if !last {
		return nil
	}
	table.Lock()
	delete(table.pieces, p.token)
	table.Unlock()
	return p.free()
}

func (p *piece) free() error {
	var errs []error
	if p.kind != descriptor && p.ptr != 0 {
		errs = append(errs, p.c.Free(p.ptr))
	}
	if p.mapped > 0 {
		errs = append(errs, unmapAll(p.c, p.ptr, p.mapped))
	}
	if p.alloc != 0 {
		errs = append(errs, p.c.Release(p.alloc))
	}
	return errors.Join(append(errs, p.c.Close())...)
}
