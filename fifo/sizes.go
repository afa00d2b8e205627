package fifo

import (
	"sync/atomic"

	"github.com/purerdma/purerdma/internal/mmio"
	"github.com/purerdma/purerdma/mr"
)

// Sizes is the ring of sizes at the receiver of data, which the sender writes
// by RDMA for groups of more than one message.
type Sizes struct {
	buf     *mr.Buffer
	plain   *[Rows]sizes // this or records, nil after Close
	records *[Rows]record
}

// NewSizes makes an empty ring. Close frees it.
func NewSizes(l Layout, opts ...mr.Option) (*Sizes, error) {
	if l >= layouts {
		return nil, errLayout(l)
	}
	b, err := mr.Alloc(Rows*l.recordRow(), opts...)
	if err != nil {
		return nil, err
	}
	s := &Sizes{buf: b}
	if l == Layout225 {
		s.plain, err = mr.View[[Rows]sizes](b, 0)
	} else {
		s.records, err = mr.View[[Rows]record](b, 0)
	}
	if err != nil {
		return nil, firstError(err, b.Close())
	}
	return s, nil
}

// Buffer is the memory to register, for the peer to write.
func (s *Sizes) Buffer() *mr.Buffer { return s.buf }

// row is the sizes of message k, nil after Close.
func (s *Sizes) row(k uint64) *[MaxRecvs]int32 {
	switch {
	case s.plain != nil:
		return &s.plain[row(k)].Bytes
	case s.records != nil:
		return &s.records[row(k)].Bytes
	}
	return nil
}

// Clear makes the first n sizes of message k zero. Call it before the offers of
// the message leave, since the peer may write from then on.
func (s *Sizes) Clear(k uint64, n int) {
	if r := s.row(k); r != nil {
		clear(r[:min(max(n, 0), MaxRecvs)])
	}
}

// Read copies the sizes of message k into dst, for the buffers that were
// offered: posted holds their sizes, and both slices have the same length. It is
// called when the completion of the message is there. A size that is negative or
// larger than the buffer is an error that wraps ErrPeer.
func (s *Sizes) Read(k uint64, posted, dst []int) error {
	r := s.row(k)
	if r == nil {
		return ErrClosed
	}
	if len(posted) < 1 || len(posted) > MaxRecvs || len(dst) != len(posted) {
		return errCount(len(posted))
	}
	mmio.LoadFence()
	for i := range posted {
		size := int(atomic.LoadInt32(&r[i]))
		if size < 0 || size > posted[i] {
			return errSize(k, i, size, posted[i])
		}
		dst[i] = size
	}
	return nil
}

// Close frees the memory once its MRs are closed too. A second Close is nil.
func (s *Sizes) Close() error {
	s.plain, s.records = nil, nil
	return s.buf.Close()
}

// SizesStaging is the sender's copy of the ring of sizes, from which it writes
// rows to the receiver of data. Its rows are 32 bytes apart in every layout.
type SizesStaging struct {
	buf  *mr.Buffer
	rows *[Rows]sizes // nil after Close
}

// NewSizesStaging makes an empty copy of 8 KiB. Close frees it.
func NewSizesStaging(opts ...mr.Option) (*SizesStaging, error) {
	b, err := mr.Alloc(sizesBytes, opts...)
	if err != nil {
		return nil, err
	}
	rows, err := mr.View[[Rows]sizes](b, 0)
	if err != nil {
		return nil, firstError(err, b.Close())
	}
	return &SizesStaging{buf: b, rows: rows}, nil
}

// Buffer is the memory to register.
func (s *SizesStaging) Buffer() *mr.Buffer { return s.buf }

// Fill writes the sizes of message k into the copy and returns where: n bytes
// from off on are what goes to SizesAddr(base, k).
func (s *SizesStaging) Fill(k uint64, bytes []int) (off, n int, err error) {
	if s.rows == nil {
		return 0, 0, ErrClosed
	}
	if len(bytes) < 1 || len(bytes) > MaxRecvs {
		return 0, 0, errCount(len(bytes))
	}
	for i, size := range bytes {
		if size < 0 || size > MaxSize {
			return 0, 0, errOwnSize(i, size)
		}
	}
	r := &s.rows[row(k)].Bytes
	for i, size := range bytes {
		r[i] = int32(size)
	}
	return int(row(k)) * sizesRow, len(bytes) * 4, nil
}

// Close frees the memory once its MRs are closed too. A second Close is nil.
func (s *SizesStaging) Close() error {
	s.rows = nil
	return s.buf.Close()
}
