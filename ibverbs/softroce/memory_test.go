package softroce

import (
	"runtime"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/softdev"
)

// idleQP is how much memory a connected queue pair takes that nobody has used yet.
// There is none beside the heap but what programs register.
func idleQP(t *testing.T, depth int) int {
	r := newRig(t, rigConfig{})
	defer r.close()
	var qps []*qp
	more := func(n int) {
		for range n {
			d, err := r.a.pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: r.a.cq, RecvCQ: r.a.cq,
				Cap: driver.QPCap{SendWR: depth, RecvWR: depth, SendSGE: 1, RecvSGE: 1, Inline: 64}})
			r.must(err)
			q := d.(*qp)
			r.must(q.Modify(&driver.QPAttr{State: driver.StateInit, Port: 1, Access: everything}, driver.QPStateMask|softdev.Required(driver.RC, driver.StateReset, driver.StateInit)))
			r.must(toRTR(r.a, q, r.b, 2))
			r.must(toRTS(r.a, q))
			qps = append(qps, q)
		}
	}
	used := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	more(100) // what all have in common is there then
	const n = 400
	before := used()
	more(n)
	each := (used() - before) / n
	for _, q := range qps {
		r.must(q.Close())
	}
	return each
}

func TestMemoryOfIdleQPs(t *testing.T) {
	small, deep := idleQP(t, 16), idleQP(t, 16384)
	t.Logf("%d bytes with depth 16, %d with depth 16384", small, deep)
	if small > 16<<10 {
		t.Errorf("a queue pair of depth 16 takes %d bytes before it is used", small)
	}
	if deep > small+1<<10 {
		t.Errorf("a queue pair of depth 16384 takes %d bytes before it is used, one of depth 16 %d: its entries are made on first use", deep, small)
	}
}
