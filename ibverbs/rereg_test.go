package ibverbs_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/mr"
)

// none is memory that has been given back.
type none struct{}

func (none) Span() (s driver.Span) { return s }

func TestReregister(t *testing.T) {
	fabric := memdriver.New(memdriver.Config{})
	dev := open(t, fabric)
	pd := get(dev.AllocPD())(t)
	one, two := get(mr.Alloc(4096))(t), get(mr.Alloc(8192))(t)
	m := get(pd.RegMR(one, ibverbs.LocalWrite))(t)
	before := m.LKey()
	other := open(t, memdriver.New(memdriver.Config{}))
	elsewhere := get(other.AllocPD())(t)
	for what, c := range map[string]ibverbs.MRChange{
		"nothing": {}, "no memory": {Memory: none{}}, "rights": {Memory: one, SetAccess: true, Access: ibverbs.RemoteWrite},
		"a PD of another device": {PD: elsewhere}, "rights that are not set": {Memory: one, Access: ibverbs.LocalWrite},
	} {
		if err := m.Reregister(c); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "re-register MR on mem0") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if m.LKey() != before || m.Len() != 4096 {
		t.Errorf("a refusal changed %d bytes, key %#x", m.Len(), m.LKey())
	}
	try(t, m.Reregister(ibverbs.MRChange{Memory: two, SetAccess: true, Access: ibverbs.LocalWrite | ibverbs.RemoteWrite}))
	if m.Len() != 8192 || m.LKey() == before || m.Addr() != two.Span().Addr() || m.SGE(8000, 192).LKey != m.LKey() {
		t.Errorf("%d bytes at %#x, key %#x", m.Len(), m.Addr(), m.LKey())
	}
	if names := strings.Join(dev.Objects(), " "); !strings.Contains(names, "8192 bytes") || strings.Contains(names, "4096 bytes") {
		t.Errorf("objects %s", names)
	}
	another := get(dev.AllocPD())(t)
	try(t, m.Reregister(ibverbs.MRChange{PD: another}))
	if err := another.Close(); !errors.Is(err, ibverbs.ErrBusy) || m.Len() != 8192 {
		t.Errorf("%d bytes, the PD of the MR was closed: %v", m.Len(), err)
	}
	try(t, pd.Close())
	if err := m.Reregister(ibverbs.MRChange{PD: pd}); !errors.Is(err, ibverbs.ErrClosed) {
		t.Errorf("to a closed PD: %v", err)
	}
	try(t, one.Close())
	try(t, two.Close())
	try(t, m.Close())
	try(t, another.Close())
	again := ibverbs.MRChange{SetAccess: true, Access: ibverbs.LocalWrite}
	if err := m.Reregister(again); !errors.Is(err, ibverbs.ErrClosed) || !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	try(t, dev.Close())
	if err := m.Reregister(again); !errors.Is(err, ibverbs.ErrClosed) {
		t.Errorf("after Close of the device: %v", err)
	}
}

// withECE is a driver whose QPs have ECE.
type (
	withECE  struct{ driver.Driver }
	eceDev   struct{ driver.Device }
	eceCtx   struct{ driver.Context }
	ecePD    struct{ driver.PD }
	eceQueue struct {
		driver.QP
		set driver.ECE
	}
)

func (d withECE) Devices() ([]driver.Device, error) {
	ds, err := d.Driver.Devices()
	for i := range ds {
		ds[i] = eceDev{ds[i]}
	}
	return ds, err
}

func (d eceDev) Open() (driver.Context, error)    { c, err := d.Device.Open(); return eceCtx{c}, err }
func (c eceCtx) AllocPD() (driver.PD, error)      { p, err := c.Context.AllocPD(); return ecePD{p}, err }
func (q *eceQueue) SetECE(e driver.ECE) error     { q.set = e; return nil }
func (q *eceQueue) QueryECE() (driver.ECE, error) { return q.set, nil }
func (p ecePD) CreateQP(c driver.QPConfig) (driver.QP, error) {
	q, err := p.PD.CreateQP(c)
	return &eceQueue{QP: q}, err
}

func TestECE(t *testing.T) {
	want := ibverbs.ECE{Vendor: 0x15b3, Options: 7}
	for _, has := range []bool{true, false} {
		var drv driver.Driver = memdriver.New(memdriver.Config{})
		if has {
			drv = withECE{drv}
		}
		dev := get(ibverbs.Open("mem0", ibverbs.WithDrivers(drv)))(t)
		pd, cq := get(dev.AllocPD())(t), get(dev.CreateCQ(4))(t)
		q := get(pd.CreateQP(ibverbs.QPConfig{SendCQ: cq, RecvCQ: cq, Cap: ibverbs.QPCap{SendWR: 1, RecvWR: 1, SendSGE: 1, RecvSGE: 1}}))(t)
		err := q.SetECE(want)
		got, err2 := q.ECE()
		if has && (err != nil || err2 != nil || got != want) {
			t.Errorf("%+v, %v, %v", got, err, err2)
		}
		if !has && (!errors.Is(err, ibverbs.ErrNotSupported) || !errors.Is(err2, errors.ErrUnsupported) || dev.Probe(ibverbs.FeatureECE) == nil) {
			t.Errorf("without: %v, %v", err, err2)
		}
		try(t, q.Close())
		if err := q.SetECE(want); !errors.Is(err, ibverbs.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		try(t, dev.Close())
	}
}
