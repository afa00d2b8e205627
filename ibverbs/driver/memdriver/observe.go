package memdriver

import "slices"

// observe tells Config.Observe of a request that is about to run.
func (d *Driver) observe(q *qp, e *sendEntry, local [][]byte) {
	if d.cfg.Observe == nil {
		return
	}
	r := Request{
		Device: q.dev().info.Name, QPN: q.num, DestQPN: q.attr.DestQPN, Op: e.op, Flags: e.flags, Imm: e.imm,
		Remote: e.remote, Inline: e.inline, CompareAdd: e.compare, Swap: e.add,
	}
	for _, b := range local {
		r.Length = append(r.Length, uint32(len(b)))
	}
	if !isRead(e.op) {
		r.Data = slices.Concat(local...)
	}
	d.cfg.Observe(r)
}
