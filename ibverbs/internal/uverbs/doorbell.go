package uverbs

import (
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// Doorbell tells the kernel to look at the send queue of one QP, for drivers
// whose queues are in memory shared with it (Soft-RoCE).
type Doorbell struct {
	d *Device
	f *frame
}

// NewDoorbell builds the command for a QP once. Close gives its memory back.
func (d *Device) NewDoorbell(qp QPHandle) (*Doorbell, error) {
	f, err := d.frame(uapi.ObjectDevice, uapi.MethodInvokeWrite)
	if err != nil {
		return nil, err
	}
	req := uapi.PostSend{QPHandle: uint32(qp), WQESize: uint32(sizeOf[uapi.SendWR]())}
	f.in(uapi.AttrCoreIn, bytesOf(&req))
	f.out(uapi.AttrCoreOut, sizeOf[uapi.PostSendResp]())
	f.constant(uapi.AttrWriteCmd, uapi.CmdPostSend)
	if err := f.seal(); err != nil {
		d.put(f)
		return nil, err
	}
	return &Doorbell{d: d, f: f}, nil
}

// Ring runs the command. The kernel may do the work of the queue in this call.
// It allocates nothing. Calls on one Doorbell come one at a time, and none
// during or after Close.
func (b *Doorbell) Ring() error { return gone(b.f.do(b.d.k, b.d.fd)) }

// Close gives the memory back to the Device. A second Close does nothing.
func (b *Doorbell) Close() {
	if b.f != nil {
		b.d.put(b.f)
		b.f = nil
	}
}
