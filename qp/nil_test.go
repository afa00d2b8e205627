package qp_test

import (
	"net"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/internal/niltest"
	"github.com/purerdma/purerdma/qp"
)

func TestNilContext(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dev, err := ibverbs.Open("mem0", ibverbs.WithDrivers(memdriver.New(memdriver.Config{})))
	must(err)
	defer func() { must(dev.Close()) }()
	pd, err := dev.AllocPD()
	must(err)
	cq, err := dev.CreateCQ(8)
	must(err)
	q, err := qp.New(pd, cq, cq, qp.WithDepth(4, 4))
	must(err)
	ours, theirs := net.Pipe()
	defer func() { must(ours.Close()); must(theirs.Close()) }()
	bundle := &qp.Bundle{QPs: []*qp.QP{q}}
	niltest.Refuses(t, map[string]func() error{
		"ConnectContext": func() error { return q.ConnectContext(niltest.Context, q.Info()) },
		"ConnectOver":    func() error { return q.ConnectOver(niltest.Context, ours) },
		"Bundle.Connect": func() error { return bundle.Connect(niltest.Context, []qp.Info{q.Info()}) },
	})
}
