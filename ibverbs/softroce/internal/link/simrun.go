package link

import (
	"net/netip"
	"time"
)

// run is one packet, or several that stayed together, on its way to a port.
type run struct {
	to   *SimLink
	from netip.AddrPort
	data []byte
	seg  int
	id   uint16
	tos  uint8

	due   time.Duration // since the Sim was made
	seq   uint64        // order of those due at the same time
	index int           // in the port's queue

	flow *flow  // that holds it back, nil if none does
	upTo uint64 // until this number
}

// takes says whether r may follow in the same run.
func (q *run) takes(r *run) bool {
	return q.seg > 0 && len(q.data)%q.seg == 0 && len(r.data) <= q.seg && len(r.data) > 0 &&
		len(q.data)+len(r.data) <= cap(q.data) &&
		q.tos == r.tos && int(r.id) == int(q.id)+len(q.data)/q.seg
}

// Runs come in two sizes, so that a queue of single packets does not hold the
// room of as many super-packets.
const (
	smallRun = 4352
	largeRun = 65536
)

func (s *Sim) newRun(from netip.AddrPort, tos uint8, id uint16, seg int, data []byte) *run {
	r := s.blank(len(data))
	r.from, r.tos, r.id, r.seg = from, tos, id, seg
	r.data = append(r.data, data...)
	return r
}

// blank is a run with room for n bytes.
func (s *Sim) blank(n int) *run {
	list, size := &s.small, smallRun
	if n > smallRun {
		list, size = &s.large, max(n, largeRun)
	}
	if last := len(*list) - 1; last >= 0 && cap((*list)[last].data) >= n {
		r := (*list)[last]
		*list = (*list)[:last]
		return r
	}
	return &run{data: make([]byte, 0, size)}
}

// roomy is a run with r's packet to which others can be added.
func (s *Sim) roomy(r *run) *run {
	if cap(r.data) >= largeRun {
		r.seg = len(r.data)
		return r
	}
	big := s.blank(largeRun)
	big.from, big.tos, big.id, big.seg = r.from, r.tos, r.id, len(r.data)
	big.data = append(big.data, r.data...)
	s.free(r)
	return big
}

func (s *Sim) free(r *run) {
	*r = run{data: r.data[:0]}
	if cap(r.data) >= largeRun {
		s.large = append(s.large, r)
	} else {
		s.small = append(s.small, r)
	}
}

// due is when something sent now with a delay comes; without one it is there
// at once, and the clock is not asked.
func (s *Sim) due(delay time.Duration) time.Duration {
	if delay == 0 {
		return 0
	}
	return time.Since(s.start) + delay
}

func (s *Sim) next() uint64 {
	s.seq++
	return s.seq
}

// deliver puts a run into the queue of a port. It is called with mu held.
func (s *Sim) deliver(to *SimLink, r *run, delay time.Duration) {
	r.to, r.due, r.seq = to, s.due(delay), s.next()
	to.push(r)
}

// runQueue is a heap by the time, then by the order of sending.
type runQueue []*run

func (q runQueue) Len() int { return len(q) }
func (q runQueue) Less(i, j int) bool {
	return q[i].due < q[j].due || q[i].due == q[j].due && q[i].seq < q[j].seq
}
func (q runQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}
func (q *runQueue) Push(x any) {
	r := x.(*run)
	r.index = len(*q)
	*q = append(*q, r)
}
func (q *runQueue) Pop() any {
	last := len(*q) - 1
	r := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return r
}
