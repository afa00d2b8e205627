package nettransport

import (
	"slices"
	"sync"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// tap stands before a driver and keeps what is posted on each queue pair.
type tap struct {
	driver.Driver
	mu    sync.Mutex
	posts []post
}

// post is one call of PostSend or PostRecv.
type post struct {
	qpn  uint32
	send []driver.SendWR
	recv []driver.RecvWR
}

func (t *tap) add(p post) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.posts = append(t.posts, p)
}

// take empties what was kept.
func (t *tap) take() []post {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.posts
	t.posts = nil
	return p
}

func (t *tap) Devices() ([]driver.Device, error) {
	ds, err := t.Driver.Devices()
	for i := range ds {
		ds[i] = tapDevice{ds[i], t}
	}
	return ds, err
}

type tapDevice struct {
	driver.Device
	t *tap
}

func (d tapDevice) Open() (driver.Context, error) {
	c, err := d.Device.Open()
	return tapContext{c, d.t}, err
}

type tapContext struct {
	driver.Context
	t *tap
}

func (c tapContext) AllocPD() (driver.PD, error) {
	p, err := c.Context.AllocPD()
	return tapPD{p, c.t}, err
}

type tapPD struct {
	driver.PD
	t *tap
}

func (p tapPD) CreateQP(c driver.QPConfig) (driver.QP, error) {
	q, err := p.PD.CreateQP(c)
	if err != nil {
		return nil, err
	}
	return tapQP{q, p.t}, nil
}

type tapQP struct {
	driver.QP
	t *tap
}

func (q tapQP) PostSend(wrs []driver.SendWR) (int, error) {
	kept := slices.Clone(wrs)
	for i := range kept {
		kept[i].SGL = slices.Clone(kept[i].SGL)
		kept[i].Inline = slices.Clone(kept[i].Inline)
	}
	q.t.add(post{qpn: q.Num(), send: kept})
	return q.QP.PostSend(wrs)
}

func (q tapQP) PostRecv(wrs []driver.RecvWR) (int, error) {
	q.t.add(post{qpn: q.Num(), recv: slices.Clone(wrs)})
	return q.QP.PostRecv(wrs)
}
