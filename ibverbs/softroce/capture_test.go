package softroce

import (
	"bytes"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/tshark"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

type captureFile struct {
	bytes.Buffer
	closed bool
}

func (f *captureFile) Close() error { f.closed = true; return nil }

// TestCapture sees that the option reaches the link; what the file holds is tested
// there.
func TestCapture(t *testing.T) {
	var f captureFile
	drv := New(Config{Addrs: []netip.Addr{addrA}, Network: OnSim(NewSim(SimConfig{})),
		Capture: func(string) (io.WriteCloser, error) { return &f, nil }})
	devices, _ := drv.Devices()
	ctx, err := devices[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := ctx.Close(); err != nil {
		t.Fatal(err)
	}
	if !f.closed || f.Len() < 28 || !bytes.HasPrefix(f.Bytes(), []byte{0x0a, 0x0d, 0x0d, 0x0a}) {
		t.Errorf("closed %v, %d bytes: %x", f.closed, f.Len(), f.Bytes())
	}
}

// What devices send of each kind of queue pair, every opcode of it, tshark takes
// for RoCE, and it reads the fields that were sent. Messages have more than a few
// bytes: in what is shorter Wireshark looks for a header and calls it malformed.
func TestTsharkReadsWhatDevicesSend(t *testing.T) {
	for name, c := range map[string]struct {
		rig     rigConfig
		also    wire.Opcode
		traffic func(r *rig)
	}{
		"RC": {rigConfig{ecn: true, psn: 0xfffff0, sim: SimConfig{Split: true}}, wire.CNP, everyRC},
		"UC": {ucRig(rigConfig{psn: 0xfffff8}), wire.UCSendOnly, everyUC},
		"UD": {udRig(rigConfig{}), wire.UDSendOnly, everyUD},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "soft.pcapng")
			c.rig.capture = func(device string) (io.WriteCloser, error) {
				if device == "soft1" {
					return &captureFile{}, nil
				}
				return os.Create(file)
			}
			sent := map[byte][]wire.Packet{}
			missing := map[wire.Opcode]bool{c.also: true}
			inBubble(t, c.rig, func(r *rig) {
				for _, op := range opcodes(func(op wire.Opcode) bool { return op.Transport() == r.a.q.transport }) {
					missing[op] = true
				}
				r.a.fill(1)
				c.traffic(r)
				r.settle()
				for _, p := range r.packets(func(seenPacket) bool { return true }) {
					view, err := wire.Parse(p.data)
					r.must(err)
					sent[p.from] = append(sent[p.from], view)
					delete(missing, p.op)
				}
			})
			for op := range missing {
				t.Errorf("no %v was sent", op)
			}
			tshark.Compare(t, file, "ip.src == "+addrA.String(), sent['a'])
			tshark.Compare(t, file, "ip.src == "+addrB.String(), sent['b'])
		})
	}
}

// everyRC sends messages of one packet and of three.
func everyRC(r *rig) {
	r.mark('a', wire.Write)
	r.b.fill(2)
	w := r.b.window()
	id := uint64(0)
	for _, n := range []int{250, 600} {
		for _, op := range []driver.Opcode{driver.OpSend, driver.OpSendWithImm, driver.OpWrite, driver.OpWriteWithImm, driver.OpSendWithInv} {
			wr := r.a.write(id, 0, n)
			wr.Op, wr.Imm, wr.Flags = op, 0x01020304, driver.Signaled|driver.Solicited
			if op == driver.OpSendWithInv {
				wr.Imm = w.now(0, 64, windowAll).RKey
			}
			if op != driver.OpWrite {
				r.b.recv(driver.RecvWR{ID: id, SGL: []driver.SGE{r.b.sge(4096, 1024)}})
			}
			r.a.post(wr)
			r.a.one(id, driver.Success)
			if op != driver.OpWrite {
				r.b.one(id, driver.Success)
			}
			id++
		}
		r.a.post(r.a.read(id, 0, n))
		r.a.one(id, driver.Success)
	}
	swap := r.a.add(20, 8, 40)
	swap.Op, swap.Swap = driver.OpCmpSwap, 50
	r.a.post(r.a.add(19, 8, 30), swap, r.a.write(21, 0, 0), r.a.read(22, 0, 0))
	r.a.take(4)
	// A NAK of each kind is one opcode more often.
	r.a.post(r.a.send(23, 0, 64))
	time.Sleep(time.Millisecond)
	bad := r.a.write(24, 0, 8)
	bad.Remote.RKey ^= 1
	r.b.recv(driver.RecvWR{ID: 23, SGL: []driver.SGE{r.b.sge(0, 64)}})
	r.a.post(bad)
	r.a.one(23, driver.Success)
	r.a.one(24, driver.RemAccessErr)
}

func everyUC(r *rig) {
	for _, n := range []int{250, 600} {
		for i, op := range []driver.Opcode{driver.OpSend, driver.OpSendWithImm, driver.OpWrite, driver.OpWriteWithImm} {
			wr := r.a.write(uint64(i), 0, n)
			wr.Op, wr.Imm = op, 0x01020304
			r.b.recv(driver.RecvWR{ID: 1, SGL: []driver.SGE{r.b.sge(4096, 1024)}})
			r.a.post(wr)
		}
	}
	r.a.take(8)
}

func everyUD(r *rig) {
	h := r.a.handle()
	for _, n := range []int{64, 101, 256} {
		plain, imm := r.a.datagram(h, 1, 0, n), r.a.datagram(h, 2, 0, n)
		imm.Op, imm.Imm = driver.OpSendWithImm, 0x01020304
		r.a.post(plain, imm)
	}
	r.a.take(6)
}
