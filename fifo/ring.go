package fifo

import "github.com/purerdma/purerdma/mr"

// ring is a ring of offers in the layout's own form, at either end.
type ring struct {
	buf   *mr.Buffer
	four  *[Rows][MaxRecvs]offer4 // this or eight; both are nil after close
	eight *[Rows][MaxRecvs]offer8
}

func newRing(l Layout, opts []mr.Option) (r ring, err error) {
	if l >= layouts {
		return r, errLayout(l)
	}
	if r.buf, err = mr.Alloc(creditBytes, opts...); err != nil {
		return r, err
	}
	if l == Layout230 {
		r.eight, err = mr.View[[Rows][MaxRecvs]offer8](r.buf, 0)
	} else {
		r.four, err = mr.View[[Rows][MaxRecvs]offer4](r.buf, 0)
	}
	if err != nil {
		return r, firstError(err, r.buf.Close())
	}
	return r, nil
}

func (r *ring) open() bool { return r.four != nil || r.eight != nil }

func (r *ring) close() error {
	r.four, r.eight = nil, nil
	return r.buf.Close()
}

// index is the last word of an offer to arrive.
func (r *ring) index(k uint64, i int) *uint64 {
	if r.four != nil {
		return &r.four[row(k)][i].Idx
	}
	return &r.eight[row(k)][i].Idx
}

// load copies offer i of message k out, each field once.
func (r *ring) load(k uint64, i int, d *CTS) {
	if r.four != nil {
		o := &r.four[row(k)][i]
		d.Addr, d.Size, d.NReqs, d.Tag, d.Idx = o.Addr, o.Size, o.NReqs, o.Tag, o.Idx
		*(*[4]uint32)(d.RKeys[:4]) = o.RKeys
		*(*[4]uint32)(d.RKeys[4:]) = [4]uint32{}
		return
	}
	o := &r.eight[row(k)][i]
	d.Addr, d.Size, d.RKeys, d.NReqs, d.Tag, d.Idx = o.Addr, o.Size, o.RKeys, o.NReqs, o.Tag, o.Idx
}

// store writes offer i of message k.
func (r *ring) store(k uint64, i int, c *CTS) {
	if r.four != nil {
		r.four[row(k)][i] = offer4{Addr: c.Addr, Size: c.Size, RKeys: [4]uint32(c.RKeys[:4]), NReqs: c.NReqs, Tag: c.Tag, Idx: c.Idx}
		return
	}
	r.eight[row(k)][i] = offer8{Addr: c.Addr, Size: c.Size, RKeys: c.RKeys, NReqs: c.NReqs, Tag: c.Tag, Idx: c.Idx}
}
