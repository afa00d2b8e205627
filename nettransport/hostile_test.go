package nettransport

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/socketboot"
)

// offer is a row of one offer as a hostile receiver may write it.
type offer struct {
	addr, size uint64
	rkey       uint32
	nreqs, tag uint32
	idx        uint64
}

func (o offer) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, o.addr)
	le.PutUint64(b[8:], o.size)
	le.PutUint32(b[16:], o.rkey)
	le.PutUint32(b[32:], o.nreqs)
	le.PutUint32(b[36:], o.tag)
	le.PutUint64(b[40:], o.idx)
}

// write puts bytes of the puppet's staging into the peer's ring.
func (p *puppet) write(off, n int) {
	p.post(0, ibverbs.SendWR{Op: ibverbs.OpWrite, Flags: ibverbs.Signaled, SGL: p.sge(0, puppetStaging+off, n),
		Remote: ibverbs.Remote{Addr: p.theirs.FIFOAddr + uint64(off), RKey: p.theirs.Devs[0].FIFORKey}})
}

func TestHostileOffers(t *testing.T) {
	good := offer{size: 64, nreqs: 1, tag: 1, idx: 1}
	tests := map[string]struct {
		twist func(o *offer)
		want  error // nil: no credit yet
		words string
	}{
		"address 0":          {func(o *offer) { o.addr = 0 }, ErrProtocol, "address 0"},
		"rkey 0":             {func(o *offer) { o.rkey = 0 }, ErrProtocol, "key"},
		"no buffers":         {func(o *offer) { o.nreqs = 0 }, ErrProtocol, "offers 0"},
		"9 buffers":          {func(o *offer) { o.nreqs = 9 }, ErrProtocol, "offers 9"},
		"2^32-1 buffers":     {func(o *offer) { o.nreqs = 1<<32 - 1 }, ErrProtocol, "offers"},
		"size of 2^63":       {func(o *offer) { o.size = 1 << 63 }, ErrProtocol, "larger"},
		"end of memory":      {func(o *offer) { o.addr, o.size = 1<<64-32, 64 }, ErrProtocol, "end of memory"},
		"message ahead":      {func(o *offer) { o.idx = 257 }, ErrProtocol, "not used"},
		"old message":        {func(o *offer) { o.idx = 0 }, nil, ""},
		"rest not there":     {func(o *offer) { o.nreqs = 8 }, nil, ""},
		"another tag":        {func(o *offer) { o.tag = 2 }, nil, ""},
		"memory of its own":  {func(o *offer) { o.addr = 4096 }, ibverbs.RemAccessErr, "IBV_WC_REM_ACCESS_ERR"},
		"key of its own":     {func(o *offer) { o.rkey ^= 0x5a5a }, ibverbs.RemAccessErr, "IBV_WC_REM_ACCESS_ERR"},
		"nothing wrong":      {func(*offer) {}, nil, ""},
		"smaller than wants": {func(o *offer) { o.size = 3 }, nil, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, 1, 1, memdriver.Config{}, nil)
			c, p := withReceiver(t, f, Config{}, nil)
			m, _ := memory(t, &c.Comm, 4096)
			o := good
			o.addr, o.rkey = p.buf.Addr()+puppetData, p.mrs[0].RKey()
			tt.twist(&o)
			o.put(p.buf.Bytes()[puppetStaging:])
			if _, err := p.bundle.QPs[0].PostRecv(ibverbs.RecvWR{}); err != nil {
				t.Fatal(err)
			}
			p.write(0, 64)
			r, ok, err := c.Isend(Buffer{MR: m, N: 64, Tag: 1})
			if ok {
				err = outcome(t, r)
			}
			if tt.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, tt.want) {
				t.Fatalf("%v is no %v", err, tt.want)
			}
			tells(t, err, tt.words, c.PeerAddr().String())
		})
	}
}

// TestHostileRandomOffers writes rows of mutated and of random bytes: our sender neither crashes nor writes outside what was
// registered, and ends in success, "not yet" or one error.
func TestHostileRandomOffers(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	for round := range 60 {
		func() {
			tr := transport(t, f.send, Config{})
			c, p := withReceiverOf(t, tr, f, nil)
			defer p.close()
			defer func() {
				if err := c.Close(); err != nil {
					t.Errorf("seed %d round %d: %v", seed, round, err)
				}
			}()
			m, _ := memory(t, &c.Comm, 4096)
			row := p.buf.Bytes()[puppetStaging:][:512]
			for i := range 8 {
				offer{addr: p.buf.Addr() + puppetData, size: 64, rkey: p.mrs[0].RKey(), nreqs: uint32(1 + r.IntN(8)), tag: 1, idx: 1}.put(row[64*i:])
			}
			for range 1 + r.IntN(6) {
				switch at := r.IntN(len(row)); r.IntN(3) {
				case 0:
					row[at] = byte(r.Uint32())
				case 1:
					row[at] = 0
				default:
					binary.LittleEndian.PutUint64(row[at/8*8:], r.Uint64())
				}
			}
			for range 4 {
				_, _ = p.bundle.QPs[0].PostRecv(ibverbs.RecvWR{})
			}
			p.write(0, 512)
			for range 20 {
				q, ok, err := c.Isend(Buffer{MR: m, N: 64, Tag: 1})
				if ok {
					_, err = q.Test(nil)
				}
				if err != nil {
					break
				}
			}
		}()
		if t.Failed() {
			t.Fatalf("seed %d round %d", seed, round)
		}
	}
}

// withReceiverOf is withReceiver for a Transport that serves several connections.
func withReceiverOf(t testing.TB, tr *Transport, f *fabric, twist func(*socketboot.Metadata)) (*SendComm, *puppet) {
	t.Helper()
	p := &puppet{t: t, nic: f.recv, twist: twist}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := localNet().Serve(ctx, func(netip.AddrPort) socketboot.AcceptorLocal { return p })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := tr.Connect(ctx, 0, l.Handle())
	if err != nil {
		t.Fatal(err)
	}
	if p.conn, err = l.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	return s, p
}

// TestHostileSender ends messages in ways that a sender must not.
func TestHostileSender(t *testing.T) {
	imm := func(n uint32) ibverbs.SendWR {
		return ibverbs.SendWR{Op: ibverbs.OpWriteWithImm, Flags: ibverbs.Signaled, Imm: (&Comm{}).order(n)}
	}
	tests := map[string]struct {
		n     int // buffers
		wr    func(p *puppet) ibverbs.SendWR
		words string
	}{
		"longer than the buffer": {1, func(*puppet) ibverbs.SendWR { return imm(101) }, "101 bytes came for a buffer of 100"},
		"2^32-1 bytes":           {1, func(*puppet) ibverbs.SendWR { return imm(1<<32 - 1) }, "came for a buffer of 100"},
		"fewer bytes than told":  {1, func(*puppet) ibverbs.SendWR { return imm(50) }, "brought 0 of the 50"},
		"no immediate data": {1, func(p *puppet) ibverbs.SendWR {
			return ibverbs.SendWR{Op: ibverbs.OpSend, Flags: ibverbs.Signaled}
		}, ""},
		"group without sizes": {2, func(*puppet) ibverbs.SendWR { return imm(0) }, "end 2 messages"},
		"group with a number": {2, func(p *puppet) ibverbs.SendWR {
			w := imm(7)
			w.SGL, w.Remote = p.sge(0, puppetStaging, 8), ibverbs.Remote{Addr: p.theirs.FIFOAddr, RKey: p.theirs.Devs[0].FIFORKey}
			return w
		}, "immediate data 7"},
		"size of a group too large": {2, func(p *puppet) ibverbs.SendWR {
			binary.LittleEndian.PutUint32(p.buf.Bytes()[puppetStaging+4:], 101)
			w := imm(0)
			w.SGL, w.Remote = p.sge(0, puppetStaging, 8), ibverbs.Remote{Addr: p.theirs.FIFOAddr, RKey: p.theirs.Devs[0].FIFORKey}
			return w
		}, "size 101"},
		"negative size of a group": {2, func(p *puppet) ibverbs.SendWR {
			binary.LittleEndian.PutUint32(p.buf.Bytes()[puppetStaging:], 1<<31)
			w := imm(0)
			w.SGL, w.Remote = p.sge(0, puppetStaging, 8), ibverbs.Remote{Addr: p.theirs.FIFOAddr, RKey: p.theirs.Devs[0].FIFORKey}
			return w
		}, "size -2147483648"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, 1, 1, memdriver.Config{}, nil)
			c, p := withSender(t, f, Config{}, 1, nil)
			m, _ := memory(t, &c.Comm, 4096)
			bs := []Buffer{{MR: m, N: 100, Tag: 1}, {MR: m, Off: 100, N: 100, Tag: 2}}
			r, ok, err := c.Irecv(bs[:tt.n]...)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			p.post(0, tt.wr(p))
			err = outcome(t, r)
			if err == nil {
				t.Fatal("no error")
			}
			tells(t, err, tt.words, c.PeerAddr().String())
		})
	}
}

// TestHostileMetadata is peers whose handshake cannot be.
func TestHostileMetadata(t *testing.T) {
	// Well-formed, but not true: the queue pair does not exist, or its path leads nowhere.
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	c, _ := withReceiver(t, f, Config{Timeout: soon}, func(m *socketboot.Metadata) { m.FIFOAddr += 4096 })
	if _, ok, err := c.Isend(Buffer{MR: must(memory(t, &c.Comm, 64)), N: 1, Tag: 1}); ok || err != nil {
		t.Fatal(ok, err)
	}
}

func must(m *MR, _ []byte) *MR { return m }

// TestListenerSurvives sends strangers to a listener while a good peer connects.
func TestListenerSurvives(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	st, rt := transport(t, f.send, Config{}), transport(t, f.recv, Config{})
	l, err := rt.Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := l.Handle()
	addr := h.Addr().String()
	for i := range 100 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%3 > 0 {
			_, _ = conn.Write([]byte("GET / HTTP/1.0\r\n\r\n")[:1+i%18])
		}
	}
	s, err := st.Connect(t.Context(), 0, h)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	(&pair{t, s, r}).transfer([]int{1, 1000}, 1)
	if c, err := l.TryAccept(); c != nil || err != nil {
		t.Error(c, err)
	}
}

// FuzzOffers lets a peer write anything into the next row of the sender's ring. A connection serves until it fails.
func FuzzOffers(f *testing.F) {
	row := make([]byte, 512)
	for i := range 8 {
		offer{addr: 1 << 20, size: 64, rkey: 77, nreqs: 8, tag: uint32(i), idx: 1}.put(row[64*i:])
	}
	f.Add(row)
	f.Add(row[:64])
	fab := newFabric(f, 1, 1, memdriver.Config{}, nil)
	tr := transport(f, fab.send, Config{})
	var c *SendComm
	var p *puppet
	var m *MR
	end := func() {
		if c != nil {
			_ = c.Close()
			p.close()
		}
		c = nil
	}
	f.Cleanup(end)
	f.Fuzz(func(t *testing.T, row []byte) {
		if c == nil {
			c, p = withReceiverOf(t, tr, fab, nil)
			m, _ = memory(t, &c.Comm, 4096)
			for range 200 {
				if _, err := p.bundle.QPs[0].PostRecv(ibverbs.RecvWR{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		at := int(c.head % 256 * 512)
		to := p.buf.Bytes()[puppetStaging+at:][:512]
		clear(to)
		copy(to, row)
		for i := range 8 { // numbers are relative, so that the next message meets them too
			idx := to[64*i+40:]
			binary.LittleEndian.PutUint64(idx, binary.LittleEndian.Uint64(idx)+c.head)
		}
		p.write(at, 512)
		for i := range 20 {
			q, ok, err := c.Isend(Buffer{MR: m, N: 64, Tag: int32(i % 9)})
			if ok {
				_, err = q.Test(nil)
			}
			if err == nil {
				continue
			}
			if !errors.Is(err, ErrProtocol) && !errors.Is(err, ibverbs.RemAccessErr) {
				t.Fatal(err)
			}
			end()
			return
		}
		if p.poll(0); c.head > 200 || c.n > 0 {
			end() // no receives are left, or half a group waits
		}
	})
}

// TestMissingKey offers a buffer without a key for the second device.
func TestMissingKey(t *testing.T) {
	f := newFabric(t, 1, 2, memdriver.Config{}, nil)
	c, p := withReceiver(t, f, Config{}, nil)
	m, _ := memory(t, &c.Comm, 4096)
	offer{addr: p.buf.Addr() + puppetData, size: 64, rkey: p.mrs[0].RKey(), nreqs: 1, tag: 1, idx: 1}.put(p.buf.Bytes()[puppetStaging:])
	p.write(0, 64)
	_, ok, err := c.Isend(Buffer{MR: m, N: 64, Tag: 1})
	if ok || !errors.Is(err, ErrProtocol) {
		t.Fatal(ok, err)
	}
	tells(t, err, "no remote key for its device 1")
}

// TestTwoLengths tells one length by one queue pair and another by the other.
func TestTwoLengths(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	c, p := withSender(t, f, Config{Split: true}, 2, nil)
	m, _ := memory(t, &c.Comm, 4096)
	r, ok, err := c.Irecv(Buffer{MR: m, N: 100, Tag: 1})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	row := p.buf.Bytes()[:64]
	le := binary.LittleEndian
	to := ibverbs.Remote{Addr: le.Uint64(row), RKey: le.Uint32(row[16:])}
	p.post(0, ibverbs.SendWR{Op: ibverbs.OpWriteWithImm, SGL: p.sge(0, puppetData, 100), Remote: to, Imm: c.order(100)})
	p.post(1, ibverbs.SendWR{Op: ibverbs.OpWriteWithImm, Imm: c.order(90)})
	tells(t, outcome(t, r), "100 bytes long by one queue pair and 90 by another")
}

// TestSizesAreCleared leaves nothing of an older group where the sizes of a new one will come.
func TestSizesAreCleared(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	c, _ := withSender(t, f, Config{}, 1, nil)
	m, _ := memory(t, &c.Comm, 4096)
	sizes := c.sizesIn.Buffer().Bytes()
	for i := range sizes[:64] {
		sizes[i] = 1
	}
	if _, ok, err := c.Irecv(Buffer{MR: m, N: 9}, Buffer{MR: m, N: 9}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for i, b := range sizes[:64] {
		if (b == 0) != (i < 8) {
			t.Errorf("byte %d of the sizes is %d", i, b)
		}
	}
}
