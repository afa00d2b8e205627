package tune

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/purerdma/purerdma/bench/control"
	"github.com/purerdma/purerdma/bench/plan"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fabric is two devices in memory.
func fabric() *memdriver.Driver {
	return memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{{}, {}}})
}

func endOn(d *memdriver.Driver, device string) EndConfig {
	return EndConfig{Device: device, GIDIndex: -1, Find: []ibverbs.Option{ibverbs.WithDrivers(d)}}
}

func tiny() plan.Spec {
	return plan.Spec{QPs: []int{1, 2, 4}, Sizes: []int{1, 129, 5000, 70_000}, Modes: plan.Both, Depth: 3, Rounds: 2, Iters: 10,
		Budget: 30 * time.Second, Seed: rand.Uint64()}
}

// session runs both ends, over a connection each.
func session(t *testing.T, spec plan.Spec, sender, receiver EndConfig, a, b net.Conn) (Result, Session, error, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var s Session
	var served error
	done := make(chan struct{})
	go func() {
		defer close(done)
		s, served = Serve(ctx, b, receiver)
	}()
	r, err := Sweep(ctx, a, sender, spec, DefaultAttributes(), nil)
	<-done
	return r, s, err, served
}

func TestSweep(t *testing.T) {
	d := fabric()
	for _, test := range []struct{ name, sender, receiver string }{{"two devices", "mem0", "mem1"}, {"one device", "mem0", "mem0"}} {
		t.Run(test.name, func(t *testing.T) {
			a, b := net.Pipe()
			spec := tiny()
			r, s, err, served := session(t, spec, endOn(d, test.sender), endOn(d, test.receiver), a, b)
			if err != nil || served != nil {
				t.Fatalf("%v; %v (seed %d)", err, served, spec.Seed)
			}
			if len(r.Settings) != 5 || len(r.Cases) != 20 || r.Rounds != 2 || s.Connections != 5 || s.Runs != 3*20+2*2*20 {
				t.Errorf("%d settings, %d cases, %d rounds; %+v", len(r.Settings), len(r.Cases), r.Rounds, s)
			}
			for i, paths := range r.Paths {
				if len(paths) != r.Settings[i].QPs {
					t.Errorf("%v has %d paths", r.Settings[i], len(paths))
				}
				for _, p := range paths {
					if p.Device != test.sender || p.UDPSourcePort < 0xc000 || p.Local.IsZero() || p.Remote.IsZero() {
						t.Errorf("path %v", p)
					}
				}
			}
			for _, k := range r.Cases {
				if len(k.Bandwidth) != 2 || len(k.Half) != 20 || k.Messages != 20 || !(k.Bandwidth[0] > 0) || !(k.Half[0] > 0) {
					t.Errorf("%+v", k)
				}
			}
			if r.Receiver.Device != test.receiver || s.Other.Device != test.sender || s.Peer == "" {
				t.Errorf("%+v %+v", r.Receiver, s)
			}
		})
	}
}

func TestSweepOverTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	d := fabric()
	spec := tiny()
	spec.QPs, spec.Sizes, spec.Rounds = []int{2}, []int{4096}, 1
	r, s, err, served := session(t, spec, endOn(d, "mem0"), endOn(d, "mem1"), a, b)
	if err != nil || served != nil {
		t.Fatal(err, served)
	}
	if len(r.Cases) != 2 || s.Peer != "127.0.0.1" {
		t.Errorf("%+v %+v", r.Cases, s)
	}
}

func TestFitsTheBudget(t *testing.T) {
	spec := tiny()
	spec.QPs, spec.Sizes, spec.Iters, spec.Rounds, spec.Budget = []int{1}, []int{64, 4096}, 0, 5, time.Second
	d := fabric()
	a, b := net.Pipe()
	r, _, err, served := session(t, spec, endOn(d, "mem0"), endOn(d, "mem1"), a, b)
	if err != nil || served != nil {
		t.Fatal(err, served)
	}
	if r.Rounds == 0 {
		t.Error("no round in a second")
	}
	t.Logf("%d rounds, %d messages", r.Rounds, r.Cases[0].Messages)
}

// Each of these ends both ends, with the reason at both.
func TestBadInput(t *testing.T) {
	infiniband := []memdriver.PortConfig{{LinkLayer: driver.LinkInfiniBand}}
	down := []memdriver.PortConfig{{State: driver.PortDown}}
	for _, test := range []struct {
		name             string
		devices          []memdriver.DeviceConfig
		sender, receiver EndConfig
		want             string
		both             bool
	}{
		{"no such device here", []memdriver.DeviceConfig{{}}, EndConfig{Device: "mlx5_9", GIDIndex: -1}, EndConfig{GIDIndex: -1}, "there are mem0", true},
		{"no such device there", []memdriver.DeviceConfig{{}}, EndConfig{GIDIndex: -1}, EndConfig{Device: "mlx5_9", GIDIndex: -1}, "there are mem0", true},
		{"port down", []memdriver.DeviceConfig{{}, {Ports: down}}, EndConfig{GIDIndex: -1}, EndConfig{Device: "mem1", GIDIndex: -1}, "DOWN", true},
		{"no such port", []memdriver.DeviceConfig{{}}, EndConfig{GIDIndex: -1, Port: 7}, EndConfig{GIDIndex: -1}, "port 7", true},
		{"no such GID", []memdriver.DeviceConfig{{}}, EndConfig{GIDIndex: 200}, EndConfig{GIDIndex: -1}, "200", true},
		{"two link layers", []memdriver.DeviceConfig{{}, {Ports: infiniband}}, EndConfig{GIDIndex: -1}, EndConfig{Device: "mem1", GIDIndex: -1}, "InfiniBand", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := memdriver.New(memdriver.Config{Devices: test.devices})
			find := []ibverbs.Option{ibverbs.WithDrivers(d)}
			test.sender.Find, test.receiver.Find = find, find
			a, b := net.Pipe()
			spec := tiny()
			_, _, err, served := session(t, spec, test.sender, test.receiver, a, b)
			for end, err := range map[string]error{"sweep": err, "serve": served} {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: %v, want %q", end, err, test.want)
				}
			}
		})
	}
}

func TestNoDevice(t *testing.T) {
	empty := memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{}})
	if _, err := Candidates(0, ibverbs.WithDrivers(empty)); !errors.Is(err, ibverbs.ErrNoDevice) || !strings.Contains(err.Error(), "lab") {
		t.Error(err)
	}
	down := memdriver.New(memdriver.Config{Devices: []memdriver.DeviceConfig{{Ports: []memdriver.PortConfig{{State: driver.PortDown}}}}})
	for port, want := range map[int]string{0: "port 1 is DOWN", 1: "port 1 is DOWN", 2: "it has no port 2"} {
		if _, err := Candidates(port, ibverbs.WithDrivers(down)); !errors.Is(err, ibverbs.ErrNoDevice) || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
}

func TestPair(t *testing.T) {
	eth := func(name string, software bool) Candidate {
		return Candidate{Name: name, Port: 1, Link: ibverbs.LinkEthernet, Software: software}
	}
	ib := Candidate{Name: "ib0", Port: 1, Link: ibverbs.LinkInfiniBand}
	for _, test := range []struct {
		list     []Candidate
		from, to string
	}{
		{[]Candidate{eth("rxe0", true), eth("rxe1", true)}, "rxe0", "rxe1"},
		{[]Candidate{eth("rxe0", true)}, "rxe0", "rxe0"},
		{[]Candidate{eth("mlx5_0", false), eth("rxe0", true)}, "mlx5_0", "mlx5_0"},
		{[]Candidate{eth("mlx5_0", false), ib, eth("mlx5_2", false)}, "mlx5_0", "mlx5_2"},
	} {
		from, to, why := Pair(test.list)
		if from.Name != test.from || to.Name != test.to || !strings.Contains(why, test.from) {
			t.Errorf("%v: %s to %s, %s", test.list, from.Name, to.Name, why)
		}
	}
}

func TestInterruptedSweep(t *testing.T) {
	d := fabric()
	a, b := net.Pipe()
	served := make(chan error, 1)
	go func() {
		_, err := Serve(context.Background(), b, endOn(d, "mem1"))
		served <- err
	}()
	spec := tiny()
	spec.Iters, spec.Rounds = 0, 100
	why := errors.New("somebody pressed a key")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	r, err := Sweep(ctx, a, endOn(d, "mem0"), spec, DefaultAttributes(), func(_, _ int, step string) {
		if strings.HasPrefix(step, "round 2") {
			cancel(why)
		}
	})
	if !errors.Is(err, why) || r.Rounds != 1 || len(r.Cases[0].Bandwidth) != 1 {
		t.Errorf("%v, %d rounds", err, r.Rounds)
	}
	if err := <-served; err == nil || !strings.Contains(err.Error(), why.Error()) {
		t.Errorf("the other end: %v", err)
	}
}

// The other end dies in the middle of a transfer.
func TestDeathOfTheOtherEnd(t *testing.T) {
	d := fabric()
	a, b := net.Pipe()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	served := make(chan error, 1)
	go func() {
		_, err := Serve(ctx, &mute{b}, endOn(d, "mem1"))
		served <- err
	}()
	spec := tiny()
	spec.Iters, spec.Rounds = 0, 100
	_, err := Sweep(t.Context(), a, endOn(d, "mem0"), spec, DefaultAttributes(), func(_, _ int, step string) {
		if strings.HasPrefix(step, "round 1") {
			kill()
		}
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "the other process ended") {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// mute is a connection whose owner says nothing about why it fails, as the dead do.
type mute struct{ net.Conn }

func (m *mute) Write(b []byte) (int, error) {
	if strings.Contains(string(b), `"type":"error"`) {
		return len(b), nil
	}
	return m.Conn.Write(b)
}

// Nothing that a stranger asks for harms the end that serves.
func TestHostileSweeper(t *testing.T) {
	good, _ := json.Marshal(begin{MaxSize: 4096, Depth: 2, Attributes: DefaultAttributes(), End: Description{LinkLayer: "Ethernet", GIDType: "RoCE v2"}})
	start := `{"type":"begin","body":` + string(good) + "}\n"
	for _, test := range []struct{ name, lines, want string }{
		{"begin without body", `{"type":"begin"}`, "messages of 0 bytes"},
		{"a huge buffer", `{"type":"begin","body":{"max_size_bytes":1073741824,"depth":128}}`, "in flight"},
		{"a size that overflows", `{"type":"begin","body":{"max_size_bytes":9223372036854775807,"depth":3}}`, "in flight"},
		{"a negative size", `{"type":"begin","body":{"max_size_bytes":-1,"depth":1}}`, "messages of -1"},
		{"not a number", `{"type":"begin","body":{"max_size_bytes":"x"}}`, "control protocol"},
		{"attributes", `{"type":"begin","body":{"max_size_bytes":1,"depth":1,"attributes":{"retry":9}}}`, "retry count 9"},
		{"run before open", start + `{"type":"run","body":{"connection":0,"kind":"stream","size_bytes":1,"count":1}}`, "connection 0 of 0"},
		{"no handle", start + `{"type":"open","body":{"qps":1}}`, "a handle of 0 bytes"},
		{"an empty handle", start + `{"type":"open","body":{"qps":1,"handle":"` + strings.Repeat("A", 171) + `="}}`, "bad handle"},
		{"an unknown question", start + `{"type":"sudo"}`, `asks for "sudo"`},
		{"another link layer", `{"type":"begin","body":{"max_size_bytes":1,"depth":1}}`, "devices of one kind"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := net.Pipe()
			served := make(chan error, 1)
			go func() {
				_, err := Serve(t.Context(), b, endOn(fabric(), ""))
				served <- err
			}()
			go func() { _, _ = io.Copy(io.Discard, a) }()
			hi, _ := json.Marshal(hello())
			_, _ = io.WriteString(a, `{"type":"hello","body":`+string(hi)+"}\n"+test.lines+"\n")
			err := <-served
			_ = a.Close()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestRunCheck(t *testing.T) {
	good := run{Connection: 1, Kind: stream, Size: 10, Count: 1}
	if err := good.check(2, 10); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*run){
		func(r *run) { r.Connection = 2 }, func(r *run) { r.Connection = -1 }, func(r *run) { r.Kind = "delete" },
		func(r *run) { r.Size = 11 }, func(r *run) { r.Size = 0 }, func(r *run) { r.Count = 0 }, func(r *run) { r.Count = 1 << 40 },
	} {
		r := good
		change(&r)
		if err := r.check(2, 10); !errors.Is(err, control.ErrProtocol) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// A handle must not lead this end to a third host.
func TestHandleElsewhere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	for addr, want := range map[string]error{"127.0.0.1:5": nil, "192.0.2.1:5": errElsewhere, "[2001:db8::1]:5": errElsewhere} {
		h := handleOf(addr)
		if _, err := handleFrom(h[:], nc); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", addr, err, want)
		}
	}
}

// The samples of a run see a message that did not arrive, and lie within the message.
func TestSamples(t *testing.T) {
	seed := rand.Uint64()
	for range 1000 {
		r := run{Size: 1 + rand.IntN(1<<20), Seed: seed}
		for _, p := range samples(r) {
			if p.off%8 != 0 || p.off < 0 || p.n < 1 || p.off+p.n > r.Size {
				t.Fatalf("%+v of %d bytes", p, r.Size)
			}
		}
		ps := samples(r)
		if last := ps[min(1, len(ps)-1)]; last.off+last.n != r.Size {
			t.Fatalf("the end of %d bytes is not looked at", r.Size)
		}
		seed++
	}
}
