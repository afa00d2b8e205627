package mlx5

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

func TestDoorbellsTakeTurns(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	page := r.k.uars[int64(r.qp.sq.bell.page)<<12]
	for i := range uint32(4) {
		clear(page)
		r.post(driver.SendWR{Op: driver.OpWrite})
		at := bytes.IndexFunc(page, func(b rune) bool { return b != 0 }) &^ 7
		half := (at - mlx5prm.UARBlueFlame) % r.c.bfRegSize
		if want := int(i) % 2 * r.c.bfRegSize / 2; half != want {
			t.Errorf("doorbell %d went to %#x", i, at)
		}
		if left := bytes.Count(page, []byte{0}); left < len(page)-8 {
			t.Errorf("%d bytes of the page were written", len(page)-left)
		}
	}
}

func TestDoorbellsAreUsedAgain(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	pd, err := r.c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		qp, err := pd.CreateQP(driver.QPConfig{Type: driver.RC, SendCQ: r.cq, RecvCQ: r.cq, Cap: small})
		if err != nil {
			t.Fatal(err)
		}
		if qp.(*QP).sq.bell == r.qp.sq.bell {
			t.Error("two queue pairs have one doorbell")
		}
		if err := qp.Close(); err != nil {
			t.Fatal(err)
		}
		qp.Purge()
	}
	if err := pd.Close(); err != nil {
		t.Error(err)
	}
	if n := len(r.c.uars); n != 1 {
		t.Errorf("%d UARs", n)
	}
}

// The consumer index that the device sees has 24 bits.
func TestConsumerIndexWraps(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	r.cq.ci, r.pi = 1<<24-1, 1<<24-1
	for _, want := range []uint32{0, 1} {
		r.complete(mlx5prm.CQEReq, 0, nil)
		if len(r.poll(1)) != 1 {
			t.Fatal("no completion")
		}
		if ci := binary.BigEndian.Uint32(r.cq.records.Bytes()); ci != want {
			t.Errorf("the record has %#x, want %#x", ci, want)
		}
	}
}
