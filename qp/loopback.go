package qp

import (
	"errors"

	"github.com/purerdma/purerdma/ibverbs"
)

// NewLoopback makes a queue pair that is connected to itself and may read memory of its protection domain, with room for depth requests.
// The end of such an RDMA READ says that what the device had written before is where its reader looks: that is how NCCL flushes. cq gets
// its completions. The caller closes it; after an error nothing is left.
func NewLoopback(pd *ibverbs.PD, cq *ibverbs.CQ, depth int, opts ...Option) (*QP, error) {
	all := append(append([]Option(nil), opts...), WithDepth(depth, 1), WithInline(0), WithAccess(ibverbs.LocalWrite|ibverbs.RemoteRead))
	q, err := New(pd, cq, cq, all...)
	if err != nil {
		return nil, err
	}
	if err := q.Connect(q.Info()); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}
