package transport

import (
	"errors"
	"strings"
	"testing"
)

func no(reason string) func(_, _ *PeerInfo) Verdict {
	return func(_, _ *PeerInfo) Verdict { return Verdict{Reason: reason} }
}

func sameHost(self, peer *PeerInfo) Verdict {
	if self.SameHost(peer) {
		return Verdict{OK: true}
	}
	return Verdict{Reason: "different hosts"}
}

// three transports on two hosts: ranks 0 and 1 on one, 2 and 3 on the other.
func twoHosts(change func(rank int, c *Config)) func(rank int, c *Config) {
	return func(rank int, c *Config) {
		f := c.Transports[0].(*fake).f
		c.Transports = []Transport{&fake{name: "P2P", f: f, rank: rank, can: no("no GPU")}, &fake{name: "SHM", f: f, rank: rank, can: sameHost},
			&fake{name: "NET", f: f, rank: rank}}
		c.Self.HostHash = uint64(1 + rank/2)
		if change != nil {
			change(rank, c)
		}
	}
}

func why(t *testing.T, w *world, rank, peer int, send bool) string {
	t.Helper()
	c, ok := w.comms[rank].Why(End{Peer: peer, ConnIndex: 1, Send: send})
	if !ok {
		t.Errorf("rank %d knows nothing of rank %d", rank, peer)
	}
	return c.String()
}

func TestChoiceSaysWhy(t *testing.T) {
	w := newWorld(t, 4, nil, twoHosts(nil))
	defer w.close(t)
	for _, err := range w.connect(t.Context(), mesh(4, 1)) {
		if err != nil {
			t.Error(err)
		}
	}
	for _, send := range []bool{true, false} {
		if got := why(t, w, 0, 1, send); got != "SHM; not P2P: no GPU (rank 0)" {
			t.Error(got)
		}
		if got := why(t, w, 0, 2, send); got != "NET; not P2P: no GPU (rank 0); not SHM: different hosts (rank 0)" {
			t.Error(got)
		}
	}
	if c, err := w.comms[3].Candidate(2); err != nil || c.Transport != "SHM" {
		t.Error(c, err)
	}
	if _, err := w.comms[3].Candidate(3); err == nil {
		t.Error("a rank is its own peer")
	}
	if _, ok := w.comms[0].Why(End{Peer: 1, Channel: 3, Send: true}); ok {
		t.Error("an end that is not connected has a reason")
	}
}

func TestVariablesForbid(t *testing.T) {
	w := newWorld(t, 4, nil, twoHosts(func(_ int, c *Config) { c.Variables.SHMDisable = true }))
	defer w.close(t)
	for _, err := range w.connect(t.Context(), mesh(4, 1)) {
		if err != nil {
			t.Error(err)
		}
	}
	if got := why(t, w, 0, 1, true); got != "NET; not P2P: no GPU (rank 0); not SHM: NCCL_SHM_DISABLE=1 (rank 0)" {
		t.Error(got)
	}
}

// Where the ends differ both take the later one, and both know who refused the better one and why.
func TestEndsThatDifferTakeTheLater(t *testing.T) {
	for refuser := range 4 {
		w := newWorld(t, 4, nil, twoHosts(func(rank int, c *Config) {
			if rank == refuser {
				c.Transports[1].(*fake).can = no("the peer's socket does not answer")
			}
		}))
		for _, err := range w.connect(t.Context(), mesh(4, 2)) {
			if err != nil {
				t.Error(err)
			}
		}
		w.connected(t, mesh(4, 2))
		other := refuser ^ 1
		for _, send := range []bool{true, false} {
			for _, rank := range []int{refuser, other} {
				got := why(t, w, rank, rank^1, send)
				if !strings.HasPrefix(got, "NET; not P2P: no GPU") || !strings.Contains(got, "not SHM: the peer's socket does not answer (rank "+string(rune('0'+refuser))+")") {
					t.Errorf("rank %d: %s", rank, got)
				}
			}
		}
		if got := why(t, w, other^2, refuser^2, true); !strings.HasPrefix(got, "SHM") {
			t.Error(got)
		}
		w.close(t)
	}
}

func TestNothingFits(t *testing.T) {
	w := newWorld(t, 4, nil, twoHosts(func(_ int, c *Config) { c.Variables.SHMDisable, c.Variables.NetDisableIntra = true, true }))
	errs := w.connect(t.Context(), ring(4, 1))
	failedAt(t, errs, 0, ErrNoTransport, "P2P: no GPU", "SHM: NCCL_SHM_DISABLE=1", "NCCL_NET_DISABLE_INTRA=1", "COLLNET: collective networks are not supported")
	w.close(t)

	// One end would take SHM alone, the other NET alone.
	w = newWorld(t, 2, nil, func(rank int, c *Config) {
		f := c.Transports[0].(*fake).f
		shm, net := &fake{name: "SHM", f: f, rank: rank}, &fake{name: "NET", f: f, rank: rank}
		if rank == 0 {
			net.can = no("no device")
		} else {
			shm.can = no("no memory")
		}
		c.Transports = []Transport{shm, net}
	})
	errs = w.connect(t.Context(), ring(2, 1))
	failedAt(t, errs, 0, ErrNoTransport, "NET: no device (rank 0)", "SHM: no memory (rank 1)")
	w.close(t)
}

func TestConfigurationsMustFit(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		"8 channels":      func(c *Config) { c.Channels = 8 },
		"batches of 64":   func(c *Config) { c.Variables.RoundPeers = 64 },
		"1024 bytes":      func(c *Config) { c.Variables.Buffers[Simple] = 1024 },
		`["COLLNET"]`:     func(c *Config) { c.Transports = nil },
		"SHM after NET":   func(c *Config) { c.Transports = append([]Transport{&fake{name: "NET"}}, c.Transports...) },
		"each once":       func(c *Config) { c.Transports = append(c.Transports, c.Transports[0]) },
		"is 65, want":     func(c *Config) { c.Channels = 65 },
		"Config.Job":      func(c *Config) { c.Job = nil },
		"cannot describe": func(c *Config) { c.Transports = []Transport{mute{c.Transports[0]}} },
	} {
		jobs := newWorld(t, 2, nil, nil)
		errs := make([]error, 2)
		each(2, func(rank int) {
			c := Config{Job: jobs.jobs[rank], Channels: 4, Log: quiet, Variables: defaultVariables(), Self: PeerInfo{HostHash: 1},
				Transports: []Transport{&fake{name: "SHM", f: jobs.f, rank: rank}}}
			if rank == 1 {
				change(&c)
			}
			if _, errs[rank] = New(t.Context(), c); errs[rank] != nil && rank == 1 {
				jobs.jobs[1].Abort(errs[rank]) // rank 0 would wait for the infos
			}
		})
		if errs[0] == nil || errs[1] == nil || !strings.Contains(errs[1].Error()+errs[0].Error(), want) {
			t.Errorf("%s: %v, %v", want, errs[0], errs[1])
		}
		jobs.close(t)
	}
}

type mute struct{ Transport }

func (mute) Describe(*PeerInfo) error { return errors.New("cannot describe") }
