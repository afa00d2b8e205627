package mlx5

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

func TestDoorbellsTakeTurns(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	page := r.k.uars[int64(r.qp.sq.bell.page)<<12]
	for i := range uint32(4) {
		clear(page)
		r.post(driver.SendWR{Op: driver.OpSend})
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

// TestBlueFlame copies single entries into the register, in whole blocks and from both ends
// of the ring, and nothing else: of a list, of an entry that does not fit, and of one that is
// no more than its head, the register has the head's first word.
func TestBlueFlame(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: driver.QPCap{SendWR: 4, SendSGE: 2, Inline: 300}})
	page := r.k.uars[int64(r.qp.sq.bell.page)<<12]
	data := make([]byte, 300)
	for i := range data {
		data[i] = byte(i + 1)
	}
	one := []driver.SGE{{Addr: 1, Length: 2, LKey: 3}}
	for i := range 400 {
		n := 1 + i%len(data)
		wrs := []driver.SendWR{{ID: uint64(i), Op: driver.OpWrite, Flags: driver.Signaled, Inline: data[:n]}}
		switch i % 5 {
		case 1:
			wrs[0].Inline, wrs[0].SGL = nil, one
		case 2:
			wrs = append([]driver.SendWR{{Op: driver.OpWrite, Inline: data[:1]}}, wrs...)
		case 3:
			wrs[0].Op, wrs[0].Inline = driver.OpSend, nil
		}
		clear(page)
		r.post(wrs...)
		entry := make([]byte, 0, 512)
		for at := uint32(0); at < r.qp.sq.lastSize; at += mlx5prm.SendBB {
			entry = append(entry, r.qp.sq.bytes(r.qp.sq.lastAt+at, mlx5prm.SendBB)...)
		}
		want := entry
		if i%5 == 2 || i%5 == 3 || len(entry) > r.c.bfRegSize/2 {
			want = entry[:8]
		}
		at := bytes.IndexFunc(page[mlx5prm.UARBlueFlame:], func(b rune) bool { return b != 0 })
		got := page[mlx5prm.UARBlueFlame+at&^(r.c.bfRegSize/2-1):]
		if !bytes.Equal(got[:len(want)], want) {
			t.Fatalf("%d: the register has\n%x, want\n%x", i, got[:len(want)], want)
		}
		clear(got[:len(want)])
		if bytes.Count(page, []byte{0}) != len(page) {
			t.Fatalf("%d: more than %d bytes were written", i, len(want))
		}
		if _, send := r.records(); send != r.qp.sq.cur&0xffff {
			t.Fatalf("%d: the record says %d, want %d", i, send, r.qp.sq.cur)
		}
		r.complete(mlx5prm.CQEReq, r.qp.sq.lastAt/mlx5prm.SendBB, nil)
		if wcs := r.poll(1); len(wcs) != 1 || wcs[0].ID != uint64(i) {
			t.Fatalf("%d: %+v", i, wcs)
		}
	}
}

// TestWithoutBlueFlame has a kernel that maps no page write-combining.
func TestWithoutBlueFlame(t *testing.T) {
	k := newFake()
	k.resp.BFRegSize = 0
	var kinds []uint64
	alloc := k.Methods[uverbstest.MLX5UARAlloc]
	k.Methods[uverbstest.MLX5UARAlloc] = func(c *uverbstest.Call) error {
		kinds = append(kinds, c.Data(uapi.AttrMLX5UARAllocType))
		return alloc(c)
	}
	r := newRig(t, k, 64, driver.QPConfig{Cap: small})
	page := r.k.uars[int64(r.qp.sq.bell.page)<<12]
	for range 3 {
		clear(page)
		r.post(driver.SendWR{Op: driver.OpWrite, Inline: []byte("hello")})
		reg := page[mlx5prm.UARBlueFlame+mlx5prm.BlueFlameSize:] // the second of the page
		if !bytes.Equal(reg[:8], r.qp.sq.bytes(r.qp.sq.lastAt, 8)) || bytes.Count(page, []byte{0}) < len(page)-8 {
			t.Errorf("the register has % x", reg[:16])
		}
	}
	for _, kind := range kinds {
		if kind != uapi.MLX5UARTypeNC {
			t.Errorf("kinds of pages: %v", kinds)
		}
	}
}
