package link

import (
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// SimConfig of a network in memory. Zero fields have defaults.
type SimConfig struct {
	Seed       uint64
	Faults     Faults
	MTU        int  // of every port; 0 is 1500
	RecvBuffer int  // bytes of each port; 0 is 4 MiB. A datagram is charged its size and 832
	Split      bool // deliver each packet alone, as from a peer that does not send runs
}

// SimPacket is a packet on its way. Data is the network's own copy: a hook may
// change it.
type SimPacket struct {
	Src, Dst netip.AddrPort
	ID       uint16 // Identification that it was sealed for
	TOS      uint8
	Data     []byte
}

// Fate is what a hook says becomes of a packet.
type Fate uint8

// Fates.
const (
	Pass  Fate = iota // to the next hook, then to the faults
	Drop              // lost
	Twice             // delivered twice, no faults
	Swap              // delivered behind the next packet of its flow, no faults
	Clean             // delivered, no faults
)

// A Hook sees each packet before the faults do, in the goroutine that sends it.
// It must not call the Sim or a link.
type Hook func(p *SimPacket) Fate

// Nth is a hook that gives a fate to packets that match: those with the numbers
// given, counted from 1.
func Nth(fate Fate, match func(p *SimPacket) bool, numbers ...int) Hook {
	var seen int
	return func(p *SimPacket) Fate {
		if !match(p) {
			return Pass
		}
		seen++
		for _, n := range numbers {
			if n == seen {
				return fate
			}
		}
		return Pass
	}
}

// Sim is a network in memory. It has no goroutine of its own and reads only
// package time, so that in a bubble of testing/synctest delays are virtual and
// nothing spins.
//
// What befalls a packet depends on the seed, on its flow (source address,
// destination address, destination QP) and on how many packets that flow has
// sent: the same seed gives the same again as long as each flow sends the same,
// in whatever order goroutines run.
type Sim struct {
	cfg   SimConfig
	start time.Time

	mu      sync.Mutex
	faults  Faults
	seq     uint64
	ports   map[netip.Addr]*SimLink
	blocked map[[2]netip.Addr]bool
	flows   map[flowKey]*flow
	hooks   []*Hook
	small   []*run // free ones
	large   []*run
}

// NewSim makes a network without ports.
func NewSim(cfg SimConfig) *Sim {
	if cfg.MTU == 0 {
		cfg.MTU = 1500
	}
	if cfg.RecvBuffer == 0 {
		cfg.RecvBuffer = 4 << 20
	}
	return &Sim{
		cfg: cfg, start: time.Now(), faults: cfg.Faults,
		ports:   make(map[netip.Addr]*SimLink),
		blocked: make(map[[2]netip.Addr]bool),
		flows:   make(map[flowKey]*flow),
	}
}

// Listen makes a port with an address. EADDRINUSE if there is one.
func (s *Sim) Listen(addr netip.Addr) (*SimLink, error) {
	addr = addr.Unmap().WithZone("")
	if !addr.IsValid() || addr.IsUnspecified() {
		return nil, fmt.Errorf("link: port at %v: %w", addr, syscall.EADDRNOTAVAIL)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports[addr] != nil {
		return nil, fmt.Errorf("link: port at %v: %w", addr, syscall.EADDRINUSE)
	}
	l := newSimLink(s, addr)
	s.ports[addr] = l
	return l, nil
}

// SetFaults changes them for packets sent from now on.
func (s *Sim) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Block makes the way from src to dst a black hole, or ends that. The way back
// is another one.
func (s *Sim) Block(src, dst netip.Addr, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.blocked[[2]netip.Addr{src, dst}] = true
	} else {
		delete(s.blocked, [2]netip.Addr{src, dst})
	}
}

// SetPort takes the port at an address down or up and tells its watcher before
// it returns. What is on the way to a port that goes down is lost.
func (s *Sim) SetPort(addr netip.Addr, up bool) {
	s.mu.Lock()
	l := s.ports[addr]
	s.mu.Unlock()
	if l != nil {
		l.setPort(up)
	}
}

// Hook adds a hook behind those there are. Calling remove takes it out.
func (s *Sim) Hook(h Hook) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &h
	s.hooks = append(s.hooks, p)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, q := range s.hooks {
			if q == p {
				s.hooks = append(s.hooks[:i:i], s.hooks[i+1:]...)
				return
			}
		}
	}
}

// Inject delivers one datagram that claims to come from src, without hooks and
// faults.
func (s *Sim) Inject(src netip.AddrPort, dst netip.Addr, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to := s.ports[dst]; to != nil && to.up {
		s.deliver(to, s.newRun(src, 0, 0, 0, data), 0)
	}
}

// send is called with mu held.
func (s *Sim) send(from *SimLink, src netip.AddrPort, d *Datagrams) {
	to := s.ports[d.Addr.Addr()]
	if to == nil || !to.up || !from.up || d.Addr.Port() != wire.Port || s.blocked[[2]netip.Addr{src.Addr(), d.Addr.Addr()}] {
		return
	}
	if len(s.hooks) == 0 && !s.faults.any() && !s.cfg.Split {
		s.deliver(to, s.newRun(src, d.TOS, 0, d.Seg, d.Data), 0)
		return
	}
	w := way{s: s, to: to}
	for k := range d.Len() {
		r := s.newRun(src, d.TOS, uint16(k), 0, d.Segment(k))
		w.packet(r, s.flow(src.Addr(), d.Addr, r.data), d)
	}
	w.flush()
}
