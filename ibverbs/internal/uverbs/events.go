package uverbs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/cause"
)

// CompChannel is a completion event file.
type CompChannel struct{ events }

// AsyncEvents is an asynchronous event file.
type AsyncEvents struct{ events }

// CreateCompChannel makes a file on which armed CQs report.
func (d *Device) CreateCompChannel() (*CompChannel, error) {
	var req uapi.CreateCompChannel
	var resp uapi.CreateCompChannelResp
	if err := d.write(uapi.CmdCreateCompChannel, bytesOf(&req), bytesOf(&resp), UHW{}); err != nil {
		return nil, gone(err)
	}
	c := &CompChannel{}
	if err := c.open(d.k, uint64(resp.FD)); err != nil {
		return nil, err
	}
	return c, nil
}

// AllocAsyncEvents makes the file on which the device, its ports and its
// objects report. The first is that of all CQs and QPs created afterwards.
func (d *Device) AllocAsyncEvents() (*AsyncEvents, error) {
	f, err := d.frame(uapi.ObjectAsyncEvent, uapi.MethodAsyncEventAlloc)
	if err != nil {
		return nil, err
	}
	defer d.put(f)
	out := f.created(uapi.AttrAsyncEventAllocFDHandle)
	if err := f.do(d.k, d.fd); err != nil {
		return nil, lacks(err, FeatureIoctl, sinceIoctl)
	}
	a := &AsyncEvents{}
	if err := a.open(d.k, f.data(out)); err != nil {
		return nil, err
	}
	if d.async == nil {
		d.async = a
	}
	return a, nil
}

// Wait returns the Cookie of a CQ that had an event. One caller at a time; Close
// wakes it with ErrClosed. An event that is there already is returned without
// allocating.
func (c *CompChannel) Wait(ctx context.Context) (cookie uint64, err error) {
	rec, err := c.next(ctx, sizeOf[uapi.CompEventDesc]())
	if err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(rec), nil
}

// Next waits for an event, as Wait does.
func (a *AsyncEvents) Next(ctx context.Context) (driver.Event, error) {
	rec, err := a.next(ctx, sizeOf[uapi.AsyncEventDesc]())
	if err != nil {
		return driver.Event{}, err
	}
	var desc uapi.AsyncEventDesc
	copy(bytesOf(&desc), rec)
	if desc.EventType > math.MaxUint8 {
		return driver.Event{}, &ResponseError{"event type", uint64(desc.EventType)}
	}
	e := driver.Event{Type: driver.EventType(desc.EventType)}
	switch e.Type.Concerns() {
	case "port":
		if desc.Element > math.MaxUint8 {
			return driver.Event{}, &ResponseError{"port of an event", desc.Element}
		}
		e.Port = int(desc.Element)
	case "device":
	default:
		e.Cookie = desc.Element
	}
	return e, nil
}

// events reads records of an event file.
type events struct {
	file   EventFile
	fd     int // for create commands; not to be read or closed
	buf    [16]byte
	inUse  atomic.Bool // by a reader
	closed atomic.Bool
}

var errTwoReaders = fmt.Errorf("another goroutine waits for events of this file: %w", syscall.EBUSY)

func (e *events) open(k Kernel, v uint64) (err error) {
	if e.fd, err = checkFD(v); err != nil {
		return err
	}
	e.file, err = k.OpenEvents(e.fd)
	return err
}

// Close closes the file and wakes its reader. A second Close is nil.
func (e *events) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	return e.file.Close()
}

// next reads one record of n bytes, valid until the next call. It tries first:
// the sleep costs a goroutine and allocations, a ready event must not.
func (e *events) next(ctx context.Context, n int) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, cause.Of(ctx)
	}
	if !e.inUse.CompareAndSwap(false, true) {
		return nil, errTwoReaders
	}
	defer e.inUse.Store(false)
	rec := e.buf[:n]
	got, err := e.file.TryRead(rec)
	if err == syscall.EAGAIN {
		got, err = e.sleep(ctx, rec)
	}
	switch {
	case err == nil && got == n:
		return rec, nil
	case err == nil:
		return nil, &ResponseError{"length of an event", uint64(got)}
	case errors.Is(err, fs.ErrClosed):
		return nil, driver.ErrClosed
	case errors.Is(err, syscall.EIO), errors.Is(err, io.EOF):
		return nil, driver.ErrDeviceGone
	}
	return nil, err
}

// sleep reads in the netpoller until ctx is done. An event that arrives together
// with the end of ctx is returned, for it is acknowledged already.
func (e *events) sleep(ctx context.Context, rec []byte) (int, error) {
	if ctx.Done() == nil {
		return e.file.Read(rec)
	}
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = e.file.SetReadDeadline(time.Unix(1, 0))
		close(fired)
	})
	n, err := e.file.Read(rec)
	if !stop() {
		<-fired
		_ = e.file.SetReadDeadline(time.Time{})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, cause.Of(ctx)
	}
	return n, err
}
