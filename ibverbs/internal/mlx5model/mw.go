package mlx5model

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// mw is a memory window: a key whose range, rights and queue pair the entries of send
// queues set.
type mw struct {
	pd     *pd
	key    uint32 // its upper 24 bits never change
	typ    uint8
	free   bool
	qpn    uint32 // the queue pair that may be asked through it, anyQP for all
	access uint32
	start  uint64
	length uint64
	memory mlx5prm.KLM // what it is bound to, by the key of an MR
}

// Types of windows (enum ib_mw_type).
const (
	mwType1 = 1
	mwType2 = uapi.MWType2
)

// anyQP is the number that a key has which no queue pair has bound.
const anyQP = 0xffffff

// index is the part of a key that stays.
func index(key uint32) uint32 { return key >> 8 }

func (c *call) allocMW(request []byte) ([]byte, error) {
	r := structOf[uapi.AllocMW](request)
	b, err := c.in(uapi.AttrUHWIn)
	if err != nil {
		return nil, err
	}
	p, err := object[*pd](c.context, uint64(r.PDHandle))
	if err != nil {
		return nil, err
	}
	own := structOf[uapi.MLX5AllocMW](b)
	switch {
	case own.CompMask != 0, own.Reserved1 != 0, own.Reserved2 != 0:
		return nil, syscall.EOPNOTSUPP
	case r.MWType != mwType1 && r.MWType != mwType2:
		return nil, syscall.EINVAL
	}
	w := &mw{pd: p, key: c.m.number() << 8, typ: r.MWType, free: true, qpn: anyQP}
	c.m.mws[index(w.key)] = w
	p.used++
	resp := uapi.AllocMWResp{MWHandle: c.add(w), RKey: w.key}
	return bytesOf(&resp), nil
}

// deallocMW frees a window, bound or not.
func (c *call) deallocMW() error {
	h := c.number(uapi.AttrDestroyMWHandle)
	w, err := object[*mw](c.context, h)
	if err != nil {
		return err
	}
	w.pd.used--
	delete(c.m.mws, index(w.key))
	delete(c.objects, uint32(h))
	return nil
}

// remote is the memory and the address that n bytes at an iova are, if a key that the peer
// gave allows it: that of an MR, or of a window that this queue pair has bound. The MR
// behind a window needs no remote rights.
func (q *qp) remote(key uint32, iova, n uint64, access uint32) (storage, uint64, bool) {
	w := q.c.m.mws[index(key)]
	if w == nil {
		return q.c.m.reach(q.pd, key, iova, n, access)
	}
	if w.free || w.key != key || w.pd != q.pd || w.qpn != anyQP && w.qpn != q.num || w.access&access != access ||
		iova < w.start || iova-w.start > w.length || n > w.length-(iova-w.start) {
		return nil, 0, false
	}
	return q.c.m.reach(q.pd, w.memory.Mkey.Get(), w.memory.Address.Get()+(iova-w.start), n, 0)
}

// invalidated frees a window at the word of the peer's message, and says whether it was
// one that this queue pair has bound.
func (q *qp) invalidated(key uint32) bool {
	w := q.c.m.mws[index(key)]
	if w == nil || w.typ != mwType2 || w.free || w.key != key || w.pd != q.pd || w.qpn != q.num {
		return false
	}
	w.free, w.qpn = true, anyQP
	return true
}
