package nettransport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/qp"
	"github.com/purerdma/purerdma/socketboot"
)

// TestBadConfig gets one clear error for each thing that cannot be.
func TestBadConfig(t *testing.T) {
	healthy := memdriver.Config{Devices: []memdriver.DeviceConfig{{Name: "mlx5_0"}, {Name: "mlx5_1", Ports: []memdriver.PortConfig{{}, {}}}}}
	tests := map[string]struct {
		fabric memdriver.Config
		config Config
		want   error
		words  []string
	}{
		"no device":       {memdriver.Config{Devices: []memdriver.DeviceConfig{}}, Config{}, ErrNoNIC, []string{"modprobe rdma_rxe", "/dev/infiniband"}},
		"unknown name":    {healthy, Config{HCA: "mlx4"}, ErrNoNIC, []string{`"mlx4"`, "mlx5_0, mlx5_1"}},
		"unknown port":    {healthy, Config{HCA: "=mlx5_0:2"}, ErrNoNIC, []string{"mlx5_0"}},
		"bad port":        {healthy, Config{HCA: "mlx5_0:x"}, syscall.EINVAL, []string{"Config.HCA", `"mlx5_0:x"`}},
		"empty name":      {healthy, Config{HCA: "a,,b"}, syscall.EINVAL, []string{"Config.HCA"}},
		"nothing after ^": {healthy, Config{HCA: "^="}, syscall.EINVAL, []string{"Config.HCA"}},
		"port down": {memdriver.Config{Devices: []memdriver.DeviceConfig{{Ports: []memdriver.PortConfig{{State: driver.PortDown}}}}}, Config{},
			ErrNoNIC, []string{"mem0/1", "DOWN", "ip link set"}},
		"no GID": {memdriver.Config{Devices: []memdriver.DeviceConfig{{Ports: []memdriver.PortConfig{{GIDs: []driver.GIDEntry{}}}}}}, Config{},
			ErrNoNIC, []string{"mem0/1", "GID", "empty"}},
		"GID index unused": {healthy, Config{QP: []qp.Option{qp.WithGIDIndex(9)}}, ErrNoNIC, []string{"index 9"}},
		"QPs":              {healthy, Config{QPsPerConn: 129}, syscall.EINVAL, []string{"Config.QPsPerConn", "129", "128"}},
		"negative QPs":     {healthy, Config{QPsPerConn: -1}, syscall.EINVAL, []string{"Config.QPsPerConn"}},
		"threshold":        {healthy, Config{ARThreshold: -2}, syscall.EINVAL, []string{"Config.ARThreshold"}},
		"timeout":          {healthy, Config{Timeout: -1}, syscall.EINVAL, []string{"Config.Timeout"}},
		"deadline of Net":  {healthy, Config{Net: socketboot.Net{Deadlines: socketboot.Deadlines{Hello: -1}}}, syscall.EINVAL, []string{"Config.Net", "Net.Deadlines.Hello"}},
		"toggle":           {healthy, Config{AdaptiveRouting: 7}, syscall.EINVAL, []string{"Config.AdaptiveRouting"}},
		"layout":           {healthy, Config{Net: socketboot.Net{Layout: 99}}, syscall.EINVAL, []string{"Config.Net.Layout"}},
		"no NICs":          {healthy, Config{NICs: []NIC{}}, syscall.EINVAL, []string{"Config.NICs"}},
		"empty NIC":        {healthy, Config{NICs: []NIC{{}}}, syscall.EINVAL, []string{"Config.NICs[0]"}},
		"NIC of nothing":   {healthy, Config{NICs: []NIC{{{}}}}, syscall.EINVAL, []string{"Config.NICs[0]"}},
		"first PSN":        {healthy, Config{QP: []qp.Option{qp.WithSendPSN(7)}}, syscall.EINVAL, []string{"Config.QP", "PSN", "0x7"}},
		"shallow queues":   {healthy, Config{RecvQP: []qp.Option{qp.WithDepth(4, 4)}}, syscall.EINVAL, []string{"Config.RecvQP", "4 and 4", "512 and 256"}},
		"QP timeout":       {healthy, Config{QP: []qp.Option{nil, qp.WithTimeout(32, 7)}}, syscall.EINVAL, []string{"Config.QP", "Timeout is above 31"}},
		"one QP's level": {healthy, Config{EachQP: func(q int) []qp.Option { return []qp.Option{qp.WithServiceLevel(uint8(q))} }},
			syscall.EINVAL, []string{"Config.EachQP", "queue pair 16", "ServiceLevel"}},
		"no entries":     {healthy, Config{QP: []qp.Option{qp.WithSGEs(0)}}, syscall.EINVAL, []string{"Config.QP", "entries"}},
		"no right":       {healthy, Config{QP: []qp.Option{qp.WithAccess(ibverbs.LocalWrite)}}, syscall.EINVAL, []string{"Config.QP", "RemoteWrite"}},
		"no room inline": {healthy, Config{Inline: true, QP: []qp.Option{qp.WithInline(8)}}, syscall.EINVAL, []string{"Config.QP", "Config.Inline", "64"}},
		"one QP's port": {healthy, Config{EachQP: func(q int) []qp.Option { return []qp.Option{qp.WithPort(1 + q/3)} }},
			syscall.EINVAL, []string{"Config.EachQP", "queue pair 3", "port"}},
		"one QP's PSN": {healthy, Config{EachQP: func(q int) []qp.Option { return []qp.Option{qp.WithSendPSN(uint32(q))} }},
			syscall.EINVAL, []string{"Config.EachQP", "queue pair 1", "PSN"}},
		"NICs and HCA": {healthy, Config{NICs: []NIC{{{}}}, HCA: "mlx5"}, syscall.EINVAL, []string{"Config.HCA"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := memdriver.New(tt.fabric)
			tt.config.Find = []ibverbs.Option{ibverbs.WithDrivers(d)}
			tt.config.Log = quiet
			tr, err := New(tt.config)
			if err == nil {
				_ = tr.Close()
			}
			if !errors.Is(err, tt.want) {
				t.Fatalf("%v is no %v", err, tt.want)
			}
			tells(t, err, tt.words...)
			for _, dc := range tt.fabric.Devices {
				if dc.Name == "" {
					dc.Name = "mem0"
				}
				if contexts, objects := d.Device(dc.Name).Leaks(); contexts+objects > 0 {
					t.Errorf("%d contexts and %d objects are open", contexts, objects)
				}
			}
		})
	}
}

// TestPermission is a device that this user may not open.
func TestPermission(t *testing.T) {
	d := memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{{Name: "a"}, {Name: "b"}}})
	d.Device("a").FailNext(memdriver.OpOpen, syscall.EACCES)
	tr, err := New(Config{Find: []ibverbs.Option{ibverbs.WithDrivers(d)}, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	nics := tr.NICs()
	if len(nics) != 1 || nics[0].Name != "b" {
		t.Fatalf("%+v", nics)
	}
	why := strings.Join(nics[0].Why, "\n")
	if !strings.Contains(why, "EACCES") || !strings.Contains(why, "/dev/infiniband/uverbs") {
		t.Errorf("why: %s", why)
	}
}

// TestFind makes a NIC of each active port, and says of the others why not.
func TestFind(t *testing.T) {
	ib := memdriver.PortConfig{LinkLayer: driver.LinkInfiniBand, SpeedMbps: 200_000}
	d := memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{
		{Name: "mlx5_0", Hardware: true, NUMANode: 1, PCI: "0000:3b:00.0", Ports: []memdriver.PortConfig{{State: driver.PortDown}, ib}},
		{Name: "mlx5_1", Hardware: true},
		{Name: "mlx5_10", Hardware: true},
		{Name: "rxe0"},
	}})
	for hca, want := range map[string]string{
		"":                  "mlx5_0/2 mlx5_1/1 mlx5_10/1 rxe0/1",
		"mlx5":              "mlx5_0/2 mlx5_1/1 mlx5_10/1",
		"=mlx5_1":           "mlx5_1/1",
		"mlx5_1":            "mlx5_1/1 mlx5_10/1",
		"^mlx5_1":           "mlx5_0/2 rxe0/1",
		"^=mlx5_1":          "mlx5_0/2 mlx5_10/1 rxe0/1",
		"mlx5_0:2,rxe0:1":   "mlx5_0/2 rxe0/1",
		"^mlx5_0:2,mlx5_1:": "",
	} {
		tr, err := New(Config{HCA: hca, Find: []ibverbs.Option{ibverbs.WithDrivers(d)}, Log: quiet})
		if want == "" {
			if !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%q: %v", hca, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", hca, err)
			continue
		}
		var got []string
		for _, n := range tr.NICs() {
			for _, p := range n.Ports {
				got = append(got, fmt.Sprintf("%s/%d", p.Device, p.Port))
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q: %s, want %s", hca, s, want)
		}
		first := tr.NICs()[0]
		if hca == "" {
			if first.SpeedMbps != 200_000 || first.NUMANode != 1 || first.PCI != "0000:3b:00.0" || first.MaxRecvs != 8 || first.LinkLayer != driver.LinkInfiniBand {
				t.Errorf("%+v", first)
			}
			if !strings.Contains(strings.Join(first.Why, "\n"), "mlx5_0/1: the port is not active: it is DOWN") {
				t.Errorf("why: %v", first.Why)
			}
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestMixedLinkLayers(t *testing.T) {
	d := memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{{Name: "ib", Ports: []memdriver.PortConfig{{LinkLayer: driver.LinkInfiniBand}}}, {Name: "eth"}}})
	var n NIC
	for _, name := range []string{"ib", "eth"} {
		dev, err := ibverbs.Open(name, ibverbs.WithDrivers(d), ibverbs.WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		n = append(n, Port{Device: dev})
	}
	_, err := New(Config{NICs: []NIC{n}, Log: quiet})
	tells(t, err, "Config.NICs[0]", "ib/1 is InfiniBand", "eth/1 is Ethernet")
	_, err = New(Config{NICs: []NIC{{n[0], n[0], n[0], n[0], n[0]}}, Log: quiet})
	tells(t, err, "Config.NICs[0]", "5 ports", "1 to 4")
	_, err = New(Config{NICs: []NIC{{{Device: n[0].Device, Number: 2}}}, Log: quiet})
	tells(t, err, "ib", "port")
}

// TestInfiniBand connects ports with LIDs, and uses the pattern of adaptive routing by itself.
func TestInfiniBand(t *testing.T) {
	ports := []memdriver.PortConfig{{LinkLayer: driver.LinkInfiniBand}}
	d := memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{{Name: "a", Ports: ports}, {Name: "b", Ports: ports}}})
	f := &fabric{Driver: d}
	for i, name := range []string{"a", "b"} {
		dev, err := ibverbs.Open(name, ibverbs.WithDrivers(d), ibverbs.WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = dev.Close() })
		if i == 0 {
			f.send = NIC{{Device: dev}}
		} else {
			f.recv = NIC{{Device: dev}}
		}
	}
	p := connect(t, f, Config{QPsPerConn: 2}, Config{})
	if !p.send.adaptive {
		t.Error("InfiniBand is not adaptive by itself")
	}
	p.transfer(edges(2), 1)
}

func TestBadCalls(t *testing.T) {
	b := newBench(t, Config{}, 1)
	o := newBench(t, Config{}, 1)
	closed, _ := memory(t, &b.send.Comm, 64)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		buf  Buffer
		want error
		word string
	}{
		{"no MR", Buffer{N: 1}, syscall.EINVAL, "RegMR"},
		{"closed MR", Buffer{MR: closed, N: 1}, ErrClosed, "closed"},
		{"foreign MR", Buffer{MR: o.smr, N: 1}, ErrForeignMR, "this connection too"},
		{"other end's MR", Buffer{MR: b.rmr, N: 1}, ErrForeignMR, "another connection"},
		{"outside", Buffer{MR: b.smr, Off: 64 << 10, N: 1}, syscall.EINVAL, "outside"},
		{"wraps", Buffer{MR: b.smr, Off: 1<<63 - 1, N: 1}, syscall.EINVAL, "outside"},
		{"negative", Buffer{MR: b.smr, Off: -1, N: 1}, syscall.EINVAL, "outside"},
		{"negative length", Buffer{MR: b.smr, N: -1}, syscall.EINVAL, "outside"},
		{"over the limit", Buffer{MR: b.smr, N: MaxMessage + 1}, ErrMessageTooLong, "1 GiB"},
	} {
		_, ok, err := b.send.Isend(tt.buf)
		if ok || !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, %v", tt.name, ok, err)
			continue
		}
		tells(t, err, tt.word, b.send.PeerAddr().String())
		if b.send.Err() != nil {
			t.Fatalf("%s: a wrong argument broke the connection", tt.name)
		}
	}
	for _, n := range []int{0, 9} {
		_, ok, err := b.recv.Irecv(make([]Buffer, n)...)
		if ok || !errors.Is(err, syscall.EINVAL) {
			t.Error(ok, err)
		}
		tells(t, err, fmt.Sprintf("%d buffers", n), "1 to 8")
	}
	if _, _, err := b.recv.Irecv(Buffer{MR: b.smr, N: 1}); !errors.Is(err, ErrForeignMR) {
		t.Error(err)
	}
	if _, err := b.send.RegMR(nil); !errors.Is(err, syscall.EINVAL) {
		t.Error(err)
	}
	if _, ok, err := b.recv.Flush(Buffer{MR: b.rmr, N: 1}); ok || err != nil {
		t.Error("flush is off:", ok, err)
	}
	b.transfer([]int{1, 2, 3}, 1)
}

func TestBadNICAndHandle(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	tr := transport(t, f.send, Config{})
	for _, nic := range []int{-1, 1} {
		_, err := tr.Listen(t.Context(), nic)
		tells(t, err, "NIC")
		_, err = tr.Connect(t.Context(), nic, Handle{})
		tells(t, err, "NIC")
		_, err = tr.Start(nic, Handle{})
		tells(t, err, "NIC")
	}
	if _, err := tr.Connect(t.Context(), 0, Handle{}); !errors.Is(err, socketboot.ErrHandle) {
		t.Error(err)
	}
}

// TestTransportBusy refuses to close what is in use, and closes afterwards.
func TestTransportBusy(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	c := Config{NICs: []NIC{f.recv}, Net: localNet(), Log: quiet}
	rt, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := rt.Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	st := transport(t, f.send, Config{})
	p, err := st.Start(0, l.Handle())
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = rt.Close()
	if !errors.Is(err, ErrBusy) {
		t.Fatal(err)
	}
	h := l.Handle()
	tells(t, err, "listener at "+h.Addr().String(), "connection from "+r.PeerAddr().String())
	var s *SendComm
	for s == nil {
		if s, err = p.Comm(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	(&pair{t, s, r}).transfer([]int{1, 2, 3}, 1)
	if err := errors.Join(p.Close(), s.Close(), r.Close(), l.Close(), l.Close(), rt.Close(), rt.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Listen(t.Context(), 0); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := l.TryAccept(); err == nil {
		t.Error("a closed listener accepted")
	}
}

// TestPendingGivenUp closes attempts that have no peer, and one whose connection nobody took.
func TestPendingGivenUp(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	st, rt := transport(t, f.send, Config{}), transport(t, f.recv, Config{})
	l, err := rt.Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := st.Start(0, l.Handle())
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-p.done
	if err := errors.Join(p.Close(), p.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
	h := l.Handle()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if p, err = st.Start(0, h); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if c, err := p.Comm(); c != nil || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(c, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := st.Connect(ctx, 0, h); err == nil {
		t.Error("connected")
	}
}

// TestBrokenSetUp makes every call that a connection's set-up makes of a device fail once, at each end: the error says which, and
// nothing stays open.
func TestBrokenSetUp(t *testing.T) {
	for _, dev := range []string{"a0", "a1", "b0", "b1"} {
		for _, op := range []memdriver.Op{memdriver.OpAllocPD, memdriver.OpCreateCQ, memdriver.OpCreateQP, memdriver.OpModifyQP, memdriver.OpRegMR,
			memdriver.OpQueryPort, memdriver.OpGIDs} {
			t.Run(dev+" "+string(op), func(t *testing.T) {
				f := newFabric(t, 2, 2, memdriver.Config{}, nil)
				c := Config{QPsPerConn: 2, Flush: true}
				st, rt := transport(t, f.send, c), transport(t, f.recv, c)
				for n := range 8 {
					before := make([]error, n)
					f.Device(dev).FailNext(op, append(before, syscall.ENOMEM)...)
					l, err := rt.Listen(t.Context(), 0)
					if err != nil {
						t.Fatal(err)
					}
					s, err := st.Connect(t.Context(), 0, l.Handle())
					if err == nil {
						// It did not come to that call.
						r, err := l.Accept(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						if err := errors.Join(s.Close(), r.Close()); err != nil {
							t.Error(err)
						}
					} else if dev[0] == 'a' {
						if !errors.Is(err, syscall.ENOMEM) {
							t.Errorf("call %d: %v", n, err)
						}
						tells(t, err, dev)
					}
					if err := l.Close(); err != nil {
						t.Error(err)
					}
					if err == nil {
						break
					}
				}
			})
		}
	}
}
