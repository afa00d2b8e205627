package uverbstest

import (
	"encoding/binary"
	"errors"
	"sync"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
	"github.com/purerdma/purerdma/internal/offheap"
	"golang.org/x/sys/unix"
)

// Handler does one command. It returns an errno or nil.
type Handler func(c *Call) error

// FakeKernel is a kernel with one device. NewFakeKernel makes one that has every
// command of Linux 6.1; tests replace single Handlers before they use it.
type FakeKernel struct {
	Methods  map[Method]Handler
	Commands map[uint32]Handler // of InvokeWrite
	Dev      uint64             // device number of the node
	OpenErr  error
	// Ring makes the memory of MapRing; nil is zeroed memory.
	Ring func(off int64, size int) (offheap.Span, error)

	mu      sync.Mutex
	open    map[int]bool   // descriptors of Open
	events  map[int]int    // writing ends of event files by their reading end
	objects map[uint16]int // alive, by kind
	next    uint32
}

// NewFakeKernel makes a kernel whose node has device number dev.
func NewFakeKernel(dev uint64) *FakeKernel {
	k := &FakeKernel{Dev: dev, open: map[int]bool{}, events: map[int]int{}, objects: map[uint16]int{}}
	u32 := func(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
	create := func(object, attr uint16, outs map[uint16][]byte) Handler {
		return func(c *Call) error {
			c.SetData(attr, uint64(k.add(object)))
			for id, v := range outs {
				c.SetOut(id, v)
			}
			return nil
		}
	}
	destroy := func(object uint16) Handler {
		return func(*Call) error {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.objects[object] == 0 {
				return syscall.ENOENT
			}
			k.objects[object]--
			return nil
		}
	}
	k.Methods = map[Method]Handler{
		GetContext: func(c *Call) error {
			c.SetOut(uapi.AttrGetContextNumCompVectors, u32(2))
			c.SetOut(uapi.AttrGetContextCoreSupport, binary.NativeEndian.AppendUint64(nil, uapi.CoreSupportOptionalMRAccess))
			return nil
		},
		QueryPort: func(c *Call) error {
			c.SetOut(uapi.AttrQueryPortResp, make([]byte, 48))
			return nil
		},
		MLX5UARAlloc: func(c *Call) error {
			h := k.add(uapi.ObjectMLX5UAR)
			c.SetOut(uapi.AttrMLX5UARAllocMMapOffset, binary.NativeEndian.AppendUint64(nil, uint64(h)<<12))
			c.SetOut(uapi.AttrMLX5UARAllocMMapLength, u32(4096))
			c.SetOut(uapi.AttrMLX5UARAllocPageID, u32(h))
			c.SetData(uapi.AttrMLX5UARAllocHandle, uint64(h))
			return nil
		},
		MLX5UARFree: destroy(uapi.ObjectMLX5UAR),
		AsyncEvents: func(c *Call) error { return k.newFile(c, uapi.AttrAsyncEventAllocFDHandle) },
		CQCreate: func(c *Call) error {
			c.SetOut(uapi.AttrCreateCQRespCQE, c.In(uapi.AttrCreateCQCQE))
			c.SetData(uapi.AttrCreateCQHandle, uint64(k.add(uapi.ObjectCQ)))
			return nil
		},
		QPCreate: func(c *Call) error {
			c.SetOut(uapi.AttrCreateQPRespCap, c.In(uapi.AttrCreateQPCap))
			h := k.add(uapi.ObjectQP)
			c.SetOut(uapi.AttrCreateQPRespQPNum, u32(h+16))
			c.SetData(uapi.AttrCreateQPHandle, uint64(h))
			return nil
		},
		RegDMABufMR: create(uapi.ObjectMR, uapi.AttrRegDMABufMRHandle,
			map[uint16][]byte{uapi.AttrRegDMABufMRRespLKey: u32(1), uapi.AttrRegDMABufMRRespRKey: u32(2)}),
		SRQCreate: func(c *Call) error {
			c.SetOut(uapi.AttrCreateSRQRespMaxWR, c.In(uapi.AttrCreateSRQMaxWR))
			c.SetOut(uapi.AttrCreateSRQRespMaxSGE, c.In(uapi.AttrCreateSRQMaxSGE))
			c.SetData(uapi.AttrCreateSRQHandle, uint64(k.add(uapi.ObjectSRQ)))
			return nil
		},
		PDDestroy:  destroy(uapi.ObjectPD),
		CQDestroy:  destroy(uapi.ObjectCQ),
		QPDestroy:  destroy(uapi.ObjectQP),
		SRQDestroy: destroy(uapi.ObjectSRQ),
		AHDestroy:  destroy(uapi.ObjectAH),
		MRDestroy:  destroy(uapi.ObjectMR),
		MWDestroy:  destroy(uapi.ObjectMW),
	}
	ok := func(*Call) error { return nil }
	k.Commands = map[uint32]Handler{
		uapi.CmdQueryDevice | uapi.CmdFlagExtended: func(c *Call) error {
			resp := make([]byte, 304)
			binary.NativeEndian.PutUint32(resp[180:], 304)
			c.SetOut(uapi.AttrCoreOut, resp)
			return nil
		},
		uapi.CmdAllocPD: func(c *Call) error {
			c.SetOut(uapi.AttrCoreOut, u32(k.add(uapi.ObjectPD)))
			return nil
		},
		uapi.CmdRegMR: func(c *Call) error {
			h := k.add(uapi.ObjectMR)
			c.SetOut(uapi.AttrCoreOut, append(append(u32(h), u32(h<<8)...), u32(h<<8)...))
			return nil
		},
		uapi.CmdReregMR: func(c *Call) error {
			h := binary.NativeEndian.Uint32(c.In(uapi.AttrCoreIn)[8:])
			if binary.NativeEndian.Uint32(c.In(uapi.AttrCoreIn)[12:]) == 0 {
				return syscall.EINVAL
			}
			c.SetOut(uapi.AttrCoreOut, append(u32(h<<8|1), u32(h<<8|1)...))
			return nil
		},
		uapi.CmdModifyCQ | uapi.CmdFlagExtended: func(c *Call) error {
			if binary.NativeEndian.Uint32(c.In(uapi.AttrCoreIn)[4:]) == 0 {
				return syscall.EINVAL
			}
			return nil
		},
		uapi.CmdCreateCompChannel: func(c *Call) error { return k.newFile(c, 0) },
		uapi.CmdCreateAH: func(c *Call) error {
			c.SetOut(uapi.AttrCoreOut, u32(k.add(uapi.ObjectAH)))
			return nil
		},
		uapi.CmdAllocMW: func(c *Call) error {
			h := k.add(uapi.ObjectMW)
			c.SetOut(uapi.AttrCoreOut, append(u32(h), u32(h<<8)...))
			return nil
		},
		uapi.CmdResizeCQ: func(c *Call) error {
			c.SetOut(uapi.AttrCoreOut, c.In(uapi.AttrCoreIn)[12:16])
			return nil
		},
		uapi.CmdQuerySRQ: func(c *Call) error {
			c.SetOut(uapi.AttrCoreOut, append(append(u32(15), u32(1)...), u32(0)...))
			return nil
		},
		uapi.CmdReqNotifyCQ: ok,
		uapi.CmdModifyQP:    ok,
		uapi.CmdModifyQP | uapi.CmdFlagExtended: func(c *Call) error {
			c.SetOut(uapi.AttrCoreOut, append(u32(0), u32(8)...))
			return nil
		},
		uapi.CmdPostSend:    ok,
		uapi.CmdAttachMcast: ok,
		uapi.CmdDetachMcast: ok,
		uapi.CmdModifySRQ:   ok,
		uapi.CmdQueryQP: func(c *Call) error {
			c.SetOut(uapi.AttrCoreOut, make([]byte, 128))
			return nil
		},
	}
	return k
}

func (k *FakeKernel) add(object uint16) uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.objects[object]++
	k.next++
	return k.next
}

// newFile makes an event file; attr 0 is the response of a write command.
func (k *FakeKernel) newFile(c *Call, attr uint16) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return err
	}
	k.mu.Lock()
	k.events[p[0]] = p[1]
	k.mu.Unlock()
	if c.Method == AsyncEvents {
		c.SetData(attr, uint64(p[0]))
	} else {
		c.SetOut(uapi.AttrCoreOut, binary.NativeEndian.AppendUint32(nil, uint32(p[0])))
	}
	return nil
}

// Post delivers a record to the event files that are open. It reports an error
// of the pipe below.
func (k *FakeKernel) Post(record []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, w := range k.events {
		_, err := unix.Write(w, record)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Left counts what a test has forgotten to close: descriptors and objects of a
// device that is open, and event files whose reader is open.
func (k *FakeKernel) Left() (files, objects int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	files = len(k.open) + len(k.events)
	for _, n := range k.objects {
		objects += n
	}
	return files, objects
}

// Open implements uverbs.Kernel.
func (k *FakeKernel) Open(string) (int, uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.OpenErr != nil {
		return -1, 0, k.OpenErr
	}
	k.next++
	fd := 1<<20 + int(k.next) // no descriptor of this process
	k.open[fd] = true
	return fd, k.Dev, nil
}

// Close implements uverbs.Kernel: the objects of the file go with it.
func (k *FakeKernel) Close(fd int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.open[fd] {
		return syscall.EBADF
	}
	delete(k.open, fd)
	if len(k.open) == 0 {
		clear(k.objects)
	}
	return nil
}

// Ioctl implements uverbs.Kernel.
func (k *FakeKernel) Ioctl(fd int, frame []byte) error {
	k.mu.Lock()
	isOpen := k.open[fd]
	k.mu.Unlock()
	if !isOpen {
		return syscall.EBADF
	}
	c, err := Decode(frame, addressOf(frame))
	if err != nil {
		return err
	}
	h := k.Methods[c.Method]
	if c.Method == InvokeWrite && h == nil {
		h = k.Commands[c.Command()]
		if c.Command() == uapi.CmdQueryDevice && c.Attr(uapi.AttrCoreOut) == nil {
			return syscall.ENOSPC
		}
	}
	if h == nil {
		return syscall.EPROTONOSUPPORT
	}
	return h(c)
}

// MapRing implements uverbs.Kernel.
func (k *FakeKernel) MapRing(_ int, off int64, size int) (offheap.Span, error) {
	if k.Ring != nil {
		return k.Ring(off, size)
	}
	return offheap.Map(size, offheap.Options{})
}

// OpenEvents implements uverbs.Kernel.
func (k *FakeKernel) OpenEvents(fd int) (uverbs.EventFile, error) {
	f, err := uverbs.Linux{}.OpenEvents(fd)
	if err != nil {
		return nil, err
	}
	return &fakeEvents{EventFile: f, k: k, fd: fd}, nil
}

// fakeEvents closes both ends of the pipe.
type fakeEvents struct {
	uverbs.EventFile
	k  *FakeKernel
	fd int
}

func (f *fakeEvents) Close() error {
	f.k.mu.Lock()
	w, ok := f.k.events[f.fd]
	delete(f.k.events, f.fd)
	f.k.mu.Unlock()
	err := f.EventFile.Close()
	if ok {
		err = errors.Join(err, unix.Close(w))
	}
	return err
}
