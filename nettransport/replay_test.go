package nettransport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/qp"
)

// TestSendToRecordedReceiver plays NCCL's receiver as recorded and wants our sender to make it complete as recorded.
func TestSendToRecordedReceiver(t *testing.T) {
	golden := recordings(t)
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			rec := golden[s.name+".receiver"]
			f := newFabric(t, s.devs, s.devs, memdriver.Config{}, nil)
			c, p := withReceiver(t, f, s.config(), nil)
			smr, data := memory(t, &c.Comm, 64<<10)
			random(data, 7)
			where := func(k, i int) int { return puppetData + 16384*k + 10000*i }
			message := 0
			for _, e := range rec.events {
				if e.recv {
					if _, err := p.bundle.QPs[e.qp].PostRecv(ibverbs.RecvWR{}); err != nil {
						t.Fatal(err)
					}
					continue
				}
				at := puppetStaging + 512*message
				row := p.buf.Bytes()[at:][:e.wr.length]
				copy(row, e.wr.bytes)
				for i := range len(row) / 64 {
					le := binary.LittleEndian
					le.PutUint64(row[64*i:], p.buf.Addr()+uint64(where(message, i)))
					for d := range p.mrs {
						le.PutUint32(row[64*i+16+4*d:], p.mrs[d].RKey())
					}
				}
				var off uint64
				fmt.Sscanf(e.wr.to, "cts_fifo+%d", &off)
				w := ibverbs.SendWR{Op: e.wr.op, SGL: p.sge(e.qp, at, len(row)), Remote: ibverbs.Remote{
					Addr: p.theirs.FIFOAddr + off, RKey: p.theirs.Devs[e.qp%len(p.theirs.Devs)].FIFORKey}}
				if e.wr.signaled {
					w.Flags = ibverbs.Signaled
				}
				p.post(e.qp, w)
				message++
			}
			for k, group := range s.sizes {
				var rs []Request
				for i, n := range group {
					tag, _ := offerOf(rec.rows[k][i])
					r, ok, err := c.Isend(Buffer{MR: smr, Off: 10000 * i, N: n, Tag: tag})
					if !ok || err != nil {
						t.Fatal(ok, err)
					}
					rs = append(rs, r)
				}
				for i, r := range rs {
					var got [1]int
					if err := r.Wait(t.Context(), got[:]); err != nil || got[0] != group[i] {
						t.Fatal(got, err)
					}
					if !bytes.Equal(p.buf.Bytes()[where(k, i):][:group[i]], data[10000*i:][:group[i]]) {
						t.Errorf("message %d buffer %d differs", k, i)
					}
				}
			}
			got := make([][]string, len(rec.completions))
			for rail := range p.cqs {
				for _, wc := range p.poll(rail) {
					q := slices.IndexFunc(p.bundle.QPs, func(q *qp.QP) bool { return q.Num() == wc.QPN })
					text := fmt.Sprintf("opcode=%d", wc.Op)
					if wc.Flags&ibverbs.WCWithImm != 0 {
						text += fmt.Sprintf(" byte_len=%d imm=%d", wc.ByteLen, c.order(wc.Imm))
					}
					got[q] = append(got[q], text)
				}
			}
			for q := range got {
				if !slices.Equal(got[q], rec.completions[q]) {
					t.Errorf("queue pair %d of the receiver completed\n%s\nwant\n%s", q, strings.Join(got[q], "\n"), strings.Join(rec.completions[q], "\n"))
				}
			}
		})
	}
}

// TestReceiveFromRecordedSender plays NCCL's sender as recorded to our receiver.
func TestReceiveFromRecordedSender(t *testing.T) {
	golden := recordings(t)
	for _, s := range scripts {
		rec := golden[s.name+".sender"]
		if rec == nil {
			continue // trace-flush has a receiver only
		}
		t.Run(s.name, func(t *testing.T) {
			f := newFabric(t, s.devs, s.devs, memdriver.Config{}, nil)
			c, p := withSender(t, f, s.config(), s.qps*s.devs, nil)
			rmr, data := memory(t, &c.Comm, 64<<10)
			var rs []Request
			for k, row := range rec.rows {
				var bs []Buffer
				for i := range row {
					tag, room := offerOf(row[i])
					bs = append(bs, Buffer{MR: rmr, Off: 16384*k + 10000*i, N: room, Tag: tag})
				}
				r, ok, err := c.Irecv(bs...)
				if !ok || err != nil {
					t.Fatal(ok, err)
				}
				rs = append(rs, r)
			}
			// The offers as they came, against those that NCCL's sender saw.
			var rows [][][]byte
			for k, row := range rec.rows {
				var came [][]byte
				for i := range row {
					b := p.buf.Bytes()[512*k+64*i:][:64]
					if maskOffer(b) != maskOffer(row[i]) {
						t.Errorf("offer %d of message %d:\n got %s\nwant %s", i, k, maskOffer(b), maskOffer(row[i]))
					}
					came = append(came, b)
				}
				rows = append(rows, came)
			}
			random(p.buf.Bytes()[puppetData:], 9)
			var chain []ibverbs.SendWR
			for n, e := range rec.events {
				chain = append(chain, p.recorded(e, rec.rows, rows, c))
				if n+1 == len(rec.events) || rec.events[n+1].wr.index == 0 {
					p.post(e.qp, chain...)
					chain = nil
				}
			}
			for k, r := range rs {
				got := make([]int, len(s.sizes[k]))
				if err := r.Wait(t.Context(), got); err != nil || !slices.Equal(got, s.sizes[k]) {
					t.Fatalf("message %d: %v, %v, want %v", k, got, err, s.sizes[k])
				}
				for i, n := range got {
					if !bytes.Equal(data[16384*k+10000*i:][:n], p.buf.Bytes()[puppetData+10000*i:][:n]) {
						t.Errorf("message %d buffer %d differs", k, i)
					}
				}
			}
		})
	}
}

// recorded is a recorded request with the addresses and keys of this connection.
func (p *puppet) recorded(e event, recorded, rows [][][]byte, c *RecvComm) ibverbs.SendWR {
	w := ibverbs.SendWR{Op: e.wr.op, Imm: c.order(e.wr.imm)}
	if e.wr.signaled {
		w.Flags = ibverbs.Signaled
	}
	dev := e.qp % len(p.theirs.Devs)
	var k, i, off int
	switch to := place(e.wr.to, recorded); {
	case strings.HasPrefix(to, "sizes_fifo+"):
		fmt.Sscanf(to, "sizes_fifo+%d", &off)
		w.Remote = ibverbs.Remote{Addr: p.theirs.FIFOAddr + uint64(off), RKey: p.theirs.Devs[dev].FIFORKey}
		copy(p.buf.Bytes()[puppetStaging+off:], e.wr.bytes)
		w.SGL = p.sge(e.qp, puppetStaging+off, e.wr.length)
		return w
	case e.wr.rkey == 0:
		return w
	default:
		if n, _ := fmt.Sscanf(to, "message %d buffer %d +%d", &k, &i, &off); n != 3 {
			p.t.Fatalf("no place for %s", to)
		}
	}
	le := binary.LittleEndian
	w.Remote = ibverbs.Remote{Addr: le.Uint64(rows[k][i]) + uint64(off), RKey: le.Uint32(rows[k][i][16+4*dev:])}
	if e.wr.length > 0 {
		w.SGL = p.sge(e.qp, puppetData+10000*i+off, e.wr.length)
	}
	return w
}
