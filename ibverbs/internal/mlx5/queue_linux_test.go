package mlx5

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/internal/mlx5prm"
)

func TestSendEntries(t *testing.T) {
	sgl := []driver.SGE{{Addr: 0x1122334455667788, Length: 0x100, LKey: 0xabcd}, {Addr: 1, Length: 0, LKey: 1}}
	remote := driver.Remote{Addr: 0x8877665544332211, RKey: 0x1234}
	const data = "00000100 0000abcd 1122334455667788"
	const raddr = "8877665544332211 00001234 00000000"
	for _, c := range []struct {
		name string
		wr   driver.SendWR
		want string // from the second word of the head; the first is opmod, index, opcode
		code string
	}{
		{"send", driver.SendWR{Op: driver.OpSend, SGL: sgl, Imm: 9}, "02 00000000 00000000" + data, "0a"},
		{"signaled", driver.SendWR{Op: driver.OpSend, Flags: driver.Signaled}, "01 00000008 00000000", "0a"},
		{"solicited, fenced", driver.SendWR{Op: driver.OpSend, Flags: driver.Solicited | driver.Fence}, "01 00000082 00000000", "0a"},
		{"send with immediate", driver.SendWR{Op: driver.OpSendWithImm, Imm: 0xdeadbeef, SGL: sgl}, "02 00000000 deadbeef" + data, "0b"},
		{"send with invalidate", driver.SendWR{Op: driver.OpSendWithInv, Imm: 0x4321, SGL: sgl}, "02 00000000 00004321" + data, "01"},
		{"write", driver.SendWR{Op: driver.OpWrite, Imm: 9, SGL: sgl, Remote: remote}, "03 00000000 00000000" + raddr + data, "08"},
		{"write with immediate", driver.SendWR{Op: driver.OpWriteWithImm, Imm: 7, Remote: remote}, "02 00000000 00000007" + raddr, "09"},
		{"read", driver.SendWR{Op: driver.OpRead, SGL: sgl, Remote: remote}, "03 00000000 00000000" + raddr + data, "10"},
		{"inline", driver.SendWR{Op: driver.OpWrite, Inline: []byte("hello"), Remote: remote}, "03 00000000 00000000" + raddr + "80000005 68656c6c6f", "08"},
		{"compare and swap", driver.SendWR{Op: driver.OpCmpSwap, SGL: []driver.SGE{{Addr: 2, Length: 8, LKey: 3}}, Remote: remote, CompareAdd: 0xc0, Swap: 0x5a},
			"04 00000000 00000000" + raddr + "000000000000005a 00000000000000c0" + "00000008 00000003 0000000000000002", "11"},
		{"fetch and add", driver.SendWR{Op: driver.OpFetchAdd, SGL: []driver.SGE{{Addr: 2, Length: 8, LKey: 3}}, Remote: remote, CompareAdd: 0xadd},
			"04 00000000 00000000" + raddr + "0000000000000add 0000000000000000" + "00000008 00000003 0000000000000002", "12"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
			for i := range r.qp.sq.bytes(0, 1<<20) {
				r.qp.sq.bytes(0, 1<<20)[i] = 0xa5
			}
			r.post(c.wr)
			b := r.qp.sq.bytes(0, 1<<20)
			same(t, "the first word", b, "000000"+c.code)
			if qpn := binary.BigEndian.Uint32(b[4:]) >> 8; qpn != r.qp.num {
				t.Errorf("QP %#x", qpn)
			}
			same(t, "the rest", b[7:], c.want)
			// The register has the head of the entry.
			page := r.k.uars[int64(r.qp.sq.bell.page)<<12]
			at := mlx5prm.UARBlueFlame
			if bytes.Equal(page[at:at+8], make([]byte, 8)) {
				at += r.c.bfRegSize // the doorbell is the second of its page
			}
			if !bytes.Equal(page[at:at+8], b[:8]) {
				t.Errorf("the register has %x, the entry begins with %x", page[at:at+8], b[:8])
			}
			if _, send := r.records(); send != 1 {
				t.Errorf("the record says %d", send)
			}
		})
	}
}

// TestEntriesOfSeveralBlocks advances the index by the blocks of each entry, and goes
// on at the start of the ring with what does not fit.
func TestEntriesOfSeveralBlocks(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: driver.QPCap{SendWR: 2, SendSGE: 8, Inline: 200}})
	size := int(r.qp.sq.mask) + 1
	data := make([]byte, 200)
	for i := range data {
		data[i] = byte(i)
	}
	var next uint32
	for range 40 {
		start := next
		r.post(driver.SendWR{ID: uint64(start), Op: driver.OpWrite, Flags: driver.Signaled, Inline: data})
		ring := r.qp.sq.bytes(0, size)
		at := int(start) * mlx5prm.SendBB
		if idx := r.qp.sq.ctrl(uint32(at)).Index(); idx != uint16(start) {
			t.Fatalf("index %d, want %d", idx, start)
		}
		for i, b := range data {
			if got := ring[(at+36+i)%size]; got != b {
				t.Fatalf("entry at %d: byte %d is %d", at, i, got)
			}
		}
		next += 4 // 32 + 4 + 200 bytes
		if _, send := r.records(); send != next {
			t.Fatalf("the record says %d, want %d", send, next)
		}
		r.complete(mlx5prm.CQEReq, start, nil)
		if wcs := r.poll(2); len(wcs) != 1 || wcs[0].ID != uint64(start) || wcs[0].Op != driver.WCWrite {
			t.Fatalf("%+v", wcs)
		}
	}
}

// TestIndicesWrap passes 2^16 blocks, receives and many turns of the CQ.
func TestIndicesWrap(t *testing.T) {
	for _, cqe := range []int{64, 128} {
		r := newRig(t, newFake(), cqe, driver.QPConfig{Cap: small})
		for i := range uint32(1<<16 + 100) {
			r.post(driver.SendWR{ID: uint64(i), Op: driver.OpWrite, Flags: driver.Signaled})
			if n, err := r.qp.PostRecv([]driver.RecvWR{{ID: uint64(i) | 1<<40}}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if recv, send := r.records(); recv != (i+1)&0xffff || send != (i+1)&0xffff {
				t.Fatalf("records %#x, %#x after %#x", recv, send, i)
			}
			if len(r.poll(1)) != 0 {
				t.Fatalf("a completion before number %#x", i)
			}
			r.complete(mlx5prm.CQEReq, i, nil)
			r.complete(mlx5prm.CQERespSend, i, nil)
			wcs := r.poll(4)
			if len(wcs) != 2 || wcs[0].ID != uint64(i) || wcs[1].ID != uint64(i)|1<<40 {
				t.Fatalf("after %#x: %+v", i, wcs)
			}
			if ci := binary.BigEndian.Uint32(r.cq.records.Bytes()); ci != 2*(i+1)&mlx5prm.CIMask {
				t.Fatalf("the consumer index is %#x", ci)
			}
		}
	}
}

func TestQueuesFillAndDrain(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	wrs := make([]driver.SendWR, 6)
	for i := range wrs {
		wrs[i] = driver.SendWR{ID: uint64(i), Op: driver.OpWrite}
	}
	if n, err := r.qp.PostSend(wrs); n != 4 || !errors.Is(err, driver.ErrQueueFull) {
		t.Fatal(n, err)
	}
	if n, err := r.qp.PostRecv(make([]driver.RecvWR, 5)); n != 4 || !errors.Is(err, driver.ErrQueueFull) {
		t.Fatal(n, err)
	}
	// One completion of the third frees those before it too.
	r.complete(mlx5prm.CQEReq, 2, nil)
	if wcs := r.poll(1); len(wcs) != 1 || wcs[0].ID != 2 {
		t.Fatalf("%+v", wcs)
	}
	if n, err := r.qp.PostSend(wrs); n != 3 || !errors.Is(err, driver.ErrQueueFull) {
		t.Fatal(n, err)
	}
}

func TestReceiveEntries(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	sge := driver.SGE{Addr: 0x1122334455667788, Length: 5, LKey: 6}
	if n, err := r.qp.PostRecv([]driver.RecvWR{{SGL: []driver.SGE{sge}}, {SGL: []driver.SGE{sge, sge}}, {SGL: []driver.SGE{{}, sge}}}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	const data, end = "00000005 00000006 1122334455667788", "00000000 00000100 0000000000000000"
	same(t, "the queue", r.qp.rq.bytes(0, 1<<20), data+end+data+data+data+end)
	if _, err := r.qp.PostRecv([]driver.RecvWR{{SGL: make([]driver.SGE, 3)}}); err != driver.ErrTooManySGE {
		t.Error(err)
	}
}

func TestRefusedRequests(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	eight := []driver.SGE{{Length: 8}}
	for name, c := range map[string]struct {
		wr   driver.SendWR
		want error
	}{
		"opcode":       {driver.SendWR{Op: 200}, driver.ErrBadOpcode},
		"window":       {driver.SendWR{Op: driver.OpBindMW}, errNoBind},
		"data":         {driver.SendWR{Op: driver.OpLocalInv, SGL: eight}, errNoData},
		"flags":        {driver.SendWR{Op: driver.OpSend, Flags: 1 << 7}, errFlags},
		"entries":      {driver.SendWR{Op: driver.OpSend, SGL: make([]driver.SGE, 3)}, driver.ErrTooManySGE},
		"inline":       {driver.SendWR{Op: driver.OpSend, Inline: make([]byte, r.qp.cap.Inline+1)}, driver.ErrInlineTooBig},
		"both":         {driver.SendWR{Op: driver.OpSend, Inline: []byte{1}, SGL: eight}, errInlineAndSGL},
		"inline read":  {driver.SendWR{Op: driver.OpRead, Inline: []byte{1}}, errInlineOp},
		"long":         {driver.SendWR{Op: driver.OpSend, SGL: []driver.SGE{{Length: 1 << 31}, {Length: 1}}}, driver.ErrTooLong},
		"short atomic": {driver.SendWR{Op: driver.OpFetchAdd, SGL: []driver.SGE{{Length: 4}}}, errAtomicLength},
	} {
		if n, err := r.qp.PostSend([]driver.SendWR{c.wr}); n != 0 || err != c.want {
			t.Errorf("%s: %d, %v; want %v", name, n, err, c.want)
		}
	}
	if _, send := r.records(); send != 0 {
		t.Errorf("the record says %d", send)
	}
	if err := r.qp.Modify(&driver.QPAttr{State: driver.StateReset}, driver.QPStateMask); err != nil {
		t.Fatal(err)
	}
	if _, err := r.qp.PostSend(make([]driver.SendWR, 1)); err != driver.ErrBadState {
		t.Error(err)
	}
	if _, err := r.qp.PostRecv(make([]driver.RecvWR, 1)); err != driver.ErrBadState {
		t.Error(err)
	}
}

func TestPostAndPollAllocateNothing(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	var i uint32
	var wcs [2]driver.WC
	if n := testing.AllocsPerRun(100, func() {
		wr := [1]driver.SendWR{{Op: driver.OpWrite, Flags: driver.Signaled, SGL: []driver.SGE{{Addr: 1, Length: 2, LKey: 3}}}}
		rr := [1]driver.RecvWR{{SGL: []driver.SGE{{Addr: 1, Length: 2, LKey: 3}}}}
		_, err1 := r.qp.PostSend(wr[:])
		_, err2 := r.qp.PostRecv(rr[:])
		r.complete(mlx5prm.CQEReq, i, nil)
		r.complete(mlx5prm.CQERespSend, i, nil)
		i++
		if got, err := r.cq.Poll(wcs[:]); got != 2 || errors.Join(err, err1, err2, r.cq.Arm(false)) != nil {
			t.Fatal(got, err, err1, err2)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestShapes(t *testing.T) {
	for _, c := range []struct {
		cap            driver.QPCap
		blocks, inline int
	}{
		{driver.QPCap{}, 0, 0},
		{driver.QPCap{SendWR: 1, SendSGE: 1}, 4, 60},
		{driver.QPCap{SendWR: 4, SendSGE: 2, Inline: 64}, 32, 124},
		{driver.QPCap{SendWR: 128, SendSGE: 1}, 512, 60},
	} {
		if b, i := sendShape(c.cap, sendOverheadRC); b != c.blocks || i != c.inline {
			t.Errorf("%+v: %d blocks, %d inline", c.cap, b, i)
		}
	}
	for _, c := range []struct {
		wr, sge, count int
		shift          uint32
	}{{0, 0, 0, 0}, {1, 1, 4, 4}, {1, 0, 4, 4}, {5, 3, 8, 6}, {16, 5, 16, 7}} {
		if n, s := recvShape(c.wr, c.sge); n != c.count || s != c.shift {
			t.Errorf("%d receives of %d: %d of 1<<%d", c.wr, c.sge, n, s)
		}
	}
}

func TestCreateQPTellsTheKernel(t *testing.T) {
	r := newRig(t, newFake(), 64, driver.QPConfig{Cap: small})
	want := uapi.MLX5CreateQP{BufAddr: r.qp.mem.Addr(), DBAddr: r.qp.mem.Addr() + 4<<5 + 32*64, SQWQECount: 32, RQWQECount: 4, RQWQEShift: 5,
		Flags: uapi.MLX5QPFlagUARPageIndex, UIdx: r.qp.key, BFRegIndex: r.qp.sq.bell.page}
	if r.k.qp != want {
		t.Errorf("%+v, want %+v", r.k.qp, want)
	}
	if a := r.qp.mem.Addr(); a%4096 != 0 {
		t.Errorf("the queues are at %#x", a)
	}
}
