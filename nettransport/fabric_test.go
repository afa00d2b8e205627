package nettransport

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/socketboot"
)

// fabric is devices in memory for both ends: a… of the sender, b… of the receiver.
type fabric struct {
	*memdriver.Driver
	send, recv NIC
}

// newFabric has so many devices at each end. through, if not nil, stands between the verbs and the devices.
func newFabric(t testing.TB, sends, recvs int, c memdriver.Config, through func(driver.Driver) driver.Driver) *fabric {
	t.Helper()
	for i := range sends {
		c.Devices = append(c.Devices, memdriver.DeviceConfig{Name: fmt.Sprintf("a%d", i)})
	}
	for i := range recvs {
		c.Devices = append(c.Devices, memdriver.DeviceConfig{Name: fmt.Sprintf("b%d", i)})
	}
	f := &fabric{Driver: memdriver.New(c)}
	var d driver.Driver = f.Driver
	if through != nil {
		d = through(d)
	}
	open := func(name string) Port {
		dev, err := ibverbs.Open(name, ibverbs.WithDrivers(d), ibverbs.WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if left := dev.Objects(); len(left) > 0 {
				t.Errorf("left open on %s: %v", name, left)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
		return Port{Device: dev}
	}
	for i := range sends {
		f.send = append(f.send, open(fmt.Sprintf("a%d", i)))
	}
	for i := range recvs {
		f.recv = append(f.recv, open(fmt.Sprintf("b%d", i)))
	}
	return f
}

var quiet = slog.New(slog.DiscardHandler)

// localNet is TCP on the loopback interface.
func localNet() socketboot.Net {
	return socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0"), Retry: socketboot.Retry{Times: -1}}
}

// transport makes a Transport of one NIC that the test closes.
func transport(t testing.TB, n NIC, c Config) *Transport {
	t.Helper()
	c.NICs = []NIC{n}
	if c.Net.Dial == nil && !c.Net.Bind.IsValid() {
		layout := c.Net.Layout
		c.Net = localNet()
		c.Net.Layout = layout
	}
	if c.Log == nil {
		c.Log = quiet
	}
	tr, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, d := range tr.devices {
			if len(d.comms) > 0 || d.users > 0 {
				t.Errorf("%s still has %d users and routes events of %d objects", d.name, d.users, len(d.comms))
			}
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

// pair is a connection, both ends.
type pair struct {
	t    testing.TB
	send *SendComm
	recv *RecvComm
}

// connect opens a connection over f. Both ends are closed with the test.
func connect(t testing.TB, f *fabric, send, recv Config) *pair {
	t.Helper()
	st, rt := transport(t, f.send, send), transport(t, f.recv, recv)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := rt.Listen(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	p := &pair{t: t}
	if p.send, err = st.Connect(ctx, 0, l.Handle()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.send.Close(); err != nil {
			t.Error(err)
		}
	})
	if p.recv, err = l.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.recv.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// memory is n bytes registered with a connection.
func memory(t testing.TB, c *Comm, n int) (*MR, []byte) {
	t.Helper()
	b, err := mr.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.RegMR(b)
	if err != nil {
		t.Fatal(err)
	}
	bytes := b.Bytes()
	if err := b.Close(); err != nil { // the MR keeps the memory
		t.Fatal(err)
	}
	return m, bytes
}

// random fills b by seed.
func random(b []byte, seed uint64) {
	src := rand.NewPCG(seed, 1)
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, src.Uint64())
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(src.Uint64())
	}
}
