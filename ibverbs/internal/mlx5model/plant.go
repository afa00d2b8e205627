package mlx5model

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

// Planted is a fault in place of what a request does. The zero value is none.
type Planted struct {
	At       End
	Syndrome uint8
}

// End is the one that a completion in error is planted at.
type End uint8

// AtRequester ends the request, which reaches nobody. AtResponder ends the receive that it
// would have taken: a reliable connection answers with a remote operational error, others
// do not answer.
const (
	AtRequester End = 1
	AtResponder End = 2
)

// planted ends an entry as Config.Plant says, if it says anything.
func (q *qp) planted(e *entry) bool {
	plant := q.c.m.config.Plant
	if op := e.Opcode(); plant == nil || op != mlx5prm.OpSendImm && op != mlx5prm.OpWriteImm {
		return false
	}
	p := plant(e.Imm.Get())
	switch p.At {
	case AtRequester:
		q.end(e, p.Syndrome)
		return true
	case AtResponder:
		return q.plantedAtPeer(e, p.Syndrome)
	}
	return false
}

// plantedAtPeer is false if the peer has nothing to end.
func (q *qp) plantedAtPeer(e *entry, syndrome uint8) bool {
	peer := q.peer()
	if q.kind == driver.UD {
		peer = q.c.m.qps[e.av.DQPDCT.Get()&0xffffff]
	}
	if peer == nil || !peer.receives() {
		return false
	}
	r := peer.nextReceive()
	if r == nil {
		return false
	}
	peer.unfit(r, syndrome, 0)
	if q.kind == driver.RC {
		q.end(e, mlx5prm.SyndromeRemoteOpErr)
		return true
	}
	q.sqCI += e.blocks
	q.sent(e, 0, nil)
	return true
}
