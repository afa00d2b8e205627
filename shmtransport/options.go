package shmtransport

import (
	"crypto/rand"
	"os"
)

// Option changes how a connection is made.
type Option func(*options)

type options struct {
	geometry
	uids  []uint32
	token Token
	names func() string // what follows nccl- in the names of files: 6 letters or digits
	// mapped, if not nil, is called with the memory's file once the rings are mapped; an error refuses the connection.
	mapped func(fd int, g geometry) error
}

// Token tells connections apart that arrive at one Listener: whoever dials says the token that it was given.
type Token [16]byte

// WithCells sets how many cells each ring has, a power of two; see DefaultCells. It is for the side that makes the memory.
func WithCells(n int) Option { return func(o *options) { o.cells = n } }

// WithData sets the size in bytes of each ring's data, a power of two; see DefaultData. It is for the side that makes the memory.
func WithData(n int) Option { return func(o *options) { o.data = n } }

// WithUsers allows peers of other users; this process's own effective user always may. The peer's kernel-told user is what counts.
func WithUsers(uids ...uint32) Option {
	return func(o *options) { o.uids = append(o.uids, uids...) }
}

// WithToken sets the token that Dial says.
func WithToken(t Token) Option { return func(o *options) { o.token = t } }

func (o options) use(fd int, g geometry) error {
	if o.mapped == nil {
		return nil
	}
	return o.mapped(fd, g)
}

func newOptions(opts []Option) options {
	o := options{geometry: geometry{DefaultCells, DefaultData, 0}, names: func() string { return rand.Text()[:6] }}
	for _, f := range opts {
		if f != nil {
			f(&o)
		}
	}
	o.uids = append(o.uids, uint32(os.Geteuid()))
	return o
}
