package mlx5model

import (
	"math/bits"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// exported is a range of memory that a file is, which the program need not have mapped.
type exported interface {
	storage
	release()
}

// regDMABuf answers REG_DMABUF_MR. A file of memory (memfd) stands for a dma-buf too, which
// takes another device to make; the kernel would refuse it with EINVAL.
func (c *call) regDMABuf() error {
	off, n, iova := c.number(uapi.AttrRegDMABufMROffset), c.number(uapi.AttrRegDMABufMRLength), c.number(uapi.AttrRegDMABufMRIOVA)
	p, err := object[*pd](c.context, c.number(uapi.AttrRegDMABufMRPDHandle))
	if err != nil {
		return err
	}
	access, err := rights(uint32(c.number(uapi.AttrRegDMABufMRAccessFlags)))
	if err != nil {
		return err
	}
	if _, over := bits.Add64(off, n, 0); over != 0 || n == 0 || off%pageSize != iova%pageSize {
		return syscall.EINVAL
	}
	file, err := c.mem.export(int32(c.number(uapi.AttrRegDMABufMRFD)), off, n)
	if err != nil {
		return err
	}
	m := &mr{c: c.context, pd: p, file: file, iova: iova, length: n, access: access}
	m.key = c.m.number() << 8
	if err := c.outs(map[uint16][]byte{uapi.AttrRegDMABufMRRespLKey: u32(m.key), uapi.AttrRegDMABufMRRespRKey: u32(m.key)}); err != nil {
		file.release()
		return err
	}
	h := c.add(m)
	if err := c.made(uapi.AttrRegDMABufMRHandle, h); err != nil {
		file.release()
		return err
	}
	c.m.mrs[m.key] = m
	p.used++
	return nil
}

// storage is where the bytes of a registration are.
func (m *mr) storage() storage {
	if m.file != nil {
		return m.file
	}
	return m.c.mem
}

// gone gives back what a registration held.
func (m *mr) gone() {
	delete(m.c.m.mrs, m.key)
	if m.file != nil {
		m.file.release()
		m.file = nil
	}
}
