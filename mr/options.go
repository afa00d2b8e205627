package mr

import (
	"log/slog"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/offheap"
)

// Option says how a Buffer is made.
type Option func(*options)

type options struct {
	hugePage int
	fallBack bool
	populate bool
	log      *slog.Logger
}

// WithHugePages takes reserved pages of size bytes, 2<<20 or 1<<30 for example,
// and fails where there are not enough.
func WithHugePages(size int) Option {
	return func(o *options) { o.hugePage, o.fallBack = size, false }
}

// WithHugePagesIfAvailable takes reserved pages of size bytes if there are
// enough, else ordinary pages. Buffer.WhyOrdinaryPages tells.
func WithHugePagesIfAvailable(size int) Option {
	return func(o *options) { o.hugePage, o.fallBack = size, true }
}

// WithPopulate makes all pages at once, so that memory which is short, or a
// /dev/shm which is full, is an error of this call. Without it the first touch
// of a page that cannot be made kills the process. It needs Linux 5.14.
func WithPopulate() Option { return func(o *options) { o.populate = true } }

// WithLogger logs to l; nil is slog.Default.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

func newOptions(opts []Option) options {
	var o options
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if o.log == nil {
		o.log = slog.Default()
	}
	return o
}

// alloc maps, and tells why the pages are ordinary where huge ones were asked
// for.
func (o options) alloc(n int) (s offheap.Span, why, err error) {
	s, err = offheap.Map(n, offheap.Options{HugePage: o.hugePage})
	if err == nil || !o.fallBack || n <= 0 {
		return s, nil, err
	}
	why = mapError("allocate huge pages", n, o.hugePage, err)
	s, err = offheap.Map(n, offheap.Options{})
	return s, why, err
}

// finish makes the Buffer of what was mapped, or unmaps it.
func (o options) finish(op string, s offheap.Span, why error) (*Buffer, error) {
	if o.populate {
		if err := s.Populate(); err != nil {
			_ = s.Release() // the first error is the one to tell
			return nil, mapError(op, s.Len(), o.hugePage, err)
		}
	}
	if why != nil {
		o.log.Info("mr: ordinary pages in place of huge ones", "bytes", s.Len(), "reason", why)
	}
	b := newBuffer(s, o.log)
	b.why = why
	return b, nil
}

// mapError says what to do about memory that could not be had.
func mapError(op string, n, hugePage int, err error) error {
	return &ibverbs.Error{Op: op, Object: bytesOf(n), Err: err, Hint: mapHint(hugePage, err)}
}
