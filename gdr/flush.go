package gdr

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/cause"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
)

const (
	// flushes is how many can be under way.
	flushes = 64
	// flushTarget is how many bytes of host memory a flush has; it reads one.
	flushTarget = 4
)

// ErrNotRead is for memory that was registered without ibverbs.RemoteRead: a
// flush reads it.
var ErrNotRead = errors.New("the memory may not be read, so nothing can be flushed")

// Flusher makes what a device has written sure to be seen by the GPU: it reads one
// byte of the memory over that device, behind the data (ncclIbIflush). A Decision
// says whether that is needed. It belongs to one goroutine at a time.
type Flusher struct {
	cq     *ibverbs.CQ
	qp     *qp.QP
	target *mr.Buffer
	reg    *ibverbs.MR
	sge    [1]ibverbs.SGE
	wcs    [16]ibverbs.WC

	started, ended uint64 // reads; they end in order
	err            error  // of the first that failed, for good
}

// NewFlusher makes the queue pair, which is connected to itself, on the device of pd. opts
// are those of the connection that brings the data: port, GID, service. The
// caller closes it, before pd.
func NewFlusher(dev *ibverbs.Context, pd *ibverbs.PD, opts ...qp.Option) (_ *Flusher, err error) {
	f := &Flusher{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("flush over %s: %w", dev.Info().Name, err), f.Close())
		}
	}()
	if f.target, err = mr.Alloc(flushTarget); err != nil {
		return nil, err
	}
	if f.reg, err = pd.RegMR(f.target, ibverbs.LocalWrite); err != nil {
		return nil, err
	}
	f.sge[0] = f.reg.SGE(0, 1)
	if f.cq, err = dev.CreateCQ(flushes); err != nil {
		return nil, err
	}
	f.qp, err = qp.NewLoopback(pd, f.cq, flushes, opts...)
	return f, err
}

// Start begins to flush what has been written to m, of which byte off is one that
// has been, and gives the number by which Done knows it. It does not wait.
// The error is ibverbs.ErrQueueFull while 64 are under way.
func (f *Flusher) Start(m *Memory, off int) (n uint64, err error) {
	switch {
	case f.err != nil:
		return 0, f.err
	case off < 0 || off >= m.n:
		return 0, fmt.Errorf("flush byte %d of GPU memory of %d bytes at %#x: %w", off, m.n, uint64(m.p), syscall.EINVAL)
	case m.access&ibverbs.RemoteRead == 0:
		return 0, fmt.Errorf("flush GPU memory at %#x: %w", uint64(m.p), ErrNotRead)
	case f.started-f.ended == flushes:
		return 0, ibverbs.ErrQueueFull
	}
	at := m.p + gpu.Ptr(off)
	for _, piece := range m.pieces {
		if off < piece.Len() {
			w := ibverbs.SendWR{ID: f.started, Op: ibverbs.OpRead, Flags: ibverbs.Signaled, SGL: f.sge[:], Remote: piece.Remote(off)}
			if _, err := f.qp.PostSend(w); err != nil {
				return 0, fmt.Errorf("flush GPU memory at %#x: %w", uint64(at), err)
			}
			f.started++
			return f.started, nil
		}
		off -= piece.Len()
	}
	return 0, fmt.Errorf("flush GPU memory at %#x: its registration is closed: %w", uint64(at), syscall.EINVAL)
}

// Done reports whether the flush with this number has ended. It does not wait. An error
// is for good: a flush that failed leaves the queue pair in the error state.
func (f *Flusher) Done(n uint64) (bool, error) {
	if n > f.ended && f.err == nil {
		got, err := f.cq.Poll(f.wcs[:])
		f.took(got, err)
	}
	return n <= f.ended, f.failed(n)
}

// Flush is Start and Done until ctx ends, which leaves the flush under way.
func (f *Flusher) Flush(ctx context.Context, m *Memory, off int) error {
	if ctx == nil {
		return fmt.Errorf("flush of GPU memory: %w", cause.Of(ctx))
	}
	n, err := f.Start(m, off)
	for err == nil && n > f.ended && f.err == nil {
		var got int
		got, err = f.cq.Wait(ctx, f.wcs[:])
		if ctx.Err() != nil && got == 0 {
			return fmt.Errorf("flush of GPU memory: %w", err)
		}
		f.took(got, err)
	}
	if err != nil {
		return err
	}
	return f.failed(n)
}

// took counts what has ended.
func (f *Flusher) took(n int, err error) {
	for i := range f.wcs[:n] {
		if wrong := f.cq.Err(&f.wcs[i]); wrong != nil && err == nil {
			err = wrong
		} else if wrong == nil {
			f.ended++
		}
	}
	if err != nil && f.err == nil {
		f.err = fmt.Errorf("flush of GPU memory: %w", err)
	}
}

// failed is the error of a flush that has not ended.
func (f *Flusher) failed(n uint64) error {
	if n <= f.ended {
		return nil
	}
	return f.err
}

// Close ends it in any state. A second call does nothing.
func (f *Flusher) Close() error {
	var errs []error
	if f.qp != nil {
		errs = append(errs, f.qp.Close())
	}
	if f.cq != nil {
		errs = append(errs, f.cq.Close())
	}
	if f.reg != nil {
		errs = append(errs, f.reg.Close())
	}
	if f.target != nil {
		errs = append(errs, f.target.Close())
	}
	if f.err == nil {
		f.err = fmt.Errorf("flush of GPU memory: %w", ibverbs.ErrClosed)
	}
	f.qp, f.cq, f.reg, f.target = nil, nil, nil, nil
	return errors.Join(errs...)
}
