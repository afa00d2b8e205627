package mlx5model

import (
	"errors"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// TestECEChecks is what the kernel takes of what a program adds to a change of a queue pair.
func TestECEChecks(t *testing.T) {
	r := opened(t, Config{})
	page := r.allocUAR()
	pd, _ := r.allocPD()
	cq, err := r.makeCQ(page, 3, 0)
	r.must(err)
	for name, c := range map[string]struct {
		own    uapi.MLX5ModifyQP
		length int
		mask   uint32
		agreed uint32
		want   error
	}{
		"options":           {uapi.MLX5ModifyQP{ECEOptions: 1<<28 | 1<<1 | 1<<5}, 16, 0, eceOptions, nil},
		"other options":     {uapi.MLX5ModifyQP{ECEOptions: 1 << 5}, 16, 0, 0, nil},
		"none":              {uapi.MLX5ModifyQP{}, 16, 0, 0, nil},
		"too short":         {uapi.MLX5ModifyQP{ECEOptions: 1 << 28}, 12, 0, 0, syscall.EINVAL},
		"longer, of zeros":  {uapi.MLX5ModifyQP{ECEOptions: 1 << 28}, 24, 0, 1 << 28, nil},
		"an unknown part":   {uapi.MLX5ModifyQP{CompMask: 1}, 16, 0, 0, syscall.EOPNOTSUPP},
		"reserved":          {uapi.MLX5ModifyQP{Reserved: 1}, 16, 0, 0, syscall.EOPNOTSUPP},
		"unknown attribute": {uapi.MLX5ModifyQP{}, 16, 1 << 26, 0, syscall.EOPNOTSUPP},
	} {
		q, _ := r.makeQP(pd, page, 4, cq, driver.RC)
		req := uapi.ExModifyQP{Base: uapi.ModifyQP{QPHandle: uint32(q), QPState: uint8(driver.StateInit), PortNum: 1,
			AttrMask: c.mask | uint32(driver.QPStateMask|driver.QPPort|driver.QPPKeyIndex|driver.QPAccessFlags)}}
		own := append(bytesOf(&c.own), make([]byte, 8)...)[:c.length]
		var told uapi.MLX5ModifyQPResp
		var resp uapi.ExModifyQPResp
		err := r.write(uapi.CmdModifyQP|uapi.CmdFlagExtended, bytesOf(&req), bytesOf(&resp), input(uapi.AttrUHWIn, own), output(uapi.AttrUHWOut, bytesOf(&told)))
		if !errors.Is(err, c.want) || told.ECEOptions != c.agreed || err == nil && int(told.ResponseLength) != len(bytesOf(&told)) {
			t.Errorf("%s: %+v, %v", name, told, err)
		}
	}
}

// TestECE has our driver learn of the options of a new queue pair, and agree on some.
func TestECE(t *testing.T) {
	m := New(Config{Fault: func(s string) { t.Error("model: " + s) }})
	dev := openOurs(t, NewLocal(m), m.config, 64)
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := dev.Probe(driver.FeatureECE); err != nil {
		t.Error(err)
	}
	a := &actor{t: t}
	a.begin(NewLocal(m))
	defer a.end()
	q := a.qp.(driver.ECEQP)
	has, err := q.QueryECE()
	if err != nil || has.Options != eceOptions || has.Vendor != 0x15b3 {
		t.Errorf("a new queue pair has %+v, %v", has, err)
	}
	has.Options |= 1 << 9
	a.must(q.SetECE(has))
	a.must(a.qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask))
	if got, err := q.QueryECE(); err != nil || got.Options != eceOptions {
		t.Errorf("agreed on %+v, %v", got, err)
	}
}
