package nettransport

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/purerdma/purerdma/gdr"
	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/transport/driver"
)

// reached is whether a logical NIC reaches the memory of the Transport's GPU, which is asked once.
type reached struct {
	known bool
	yes   bool
	flush bool   // what it has written there is flushed
	why   string // in the words of the query
}

// places is where the buffers of one end lie: those in the GPU's memory, else in the host's.
type places struct {
	gpu   [driver.Protocols]bool
	flush bool
	why   string
}

// places is NCCL's rule for one end on NIC i: a receiver has all buffers in the GPU's memory where the NIC reaches that, a sender all but
// that of LL, whose lines its proxy reads; and none where devices may not send from there.
func (s *seam) places(i int, send bool) (p places, err error) {
	if s.t.cfg.GPU == nil {
		return places{}, nil
	}
	r, err := s.reached(i)
	if err != nil {
		return places{}, err
	}
	p = places{flush: r.flush && r.yes, why: r.why}
	if send && r.yes {
		c := s.t.nics[i].ports[0].dev.gdr()
		if ok, why := c.MayRead(); !ok {
			return places{why: staged(why)}, nil
		}
	}
	if r.yes {
		p.gpu = [driver.Protocols]bool{driver.LL: !send, driver.LL128: true, driver.Simple: true}
	}
	return p, nil
}

func staged(why string) string { return "staged through pinned host memory: " + why }

// reached asks each device of NIC i, by registering memory, and tells the outcome once.
func (s *seam) reached(i int) (reached, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nics == nil {
		s.nics = make([]reached, len(s.t.nics))
	}
	r := &s.nics[i]
	if r.known {
		return *r, nil
	}
	found := reached{known: true, yes: true}
	for _, p := range s.t.nics[i].ports {
		d, err := p.dev.tryGPU()
		if err != nil {
			return reached{}, err
		}
		found.flush = found.flush || d.Flush
		if found.why = fmt.Sprintf("%v: %s", d.Way, d.Reason); d.Way == gdr.Staged {
			found.yes, found.why = false, staged(d.Reason)
			break
		}
	}
	*r = found
	s.t.log.Info("data of the GPU over the network", "gpu", s.t.cfg.GPU.Device().Name, "nic", s.t.nics[i].name, "way", found.why)
	return found, nil
}

// tryGPU registers a little memory of the Transport's GPU, and gives the way that this went.
func (d *device) tryGPU() (_ gdr.Decision, err error) {
	const n = 4096
	if _, _, err = d.acquire(); err != nil {
		return gdr.Decision{}, err
	}
	defer func() { err = errors.Join(err, d.release()) }()
	r, err := d.registrar()
	if err != nil {
		return gdr.Decision{}, err
	}
	if found := r.Decision(); found.Way == gdr.Staged {
		return found, nil
	}
	g := d.t.cfg.GPU
	p, err := g.Alloc(n)
	if err != nil {
		return gdr.Decision{}, fmt.Errorf("memory to try with %s: %w", d.name, err)
	}
	defer func() { err = errors.Join(err, g.Free(p)) }()
	m, err := r.Register(p, n, userAccess)
	if errors.Is(err, gdr.ErrStaged) {
		return r.Decision(), nil
	}
	if err != nil {
		return gdr.Decision{}, err
	}
	return r.Decision(), m.Close()
}

// how says where the data of the rank's GPU lies at its ends, "" without one.
func (s *seam) how() (string, error) {
	var all []string
	for i := range s.t.nics {
		send, err := s.places(i, true)
		if err != nil {
			return "", err
		}
		recv, err := s.places(i, false)
		if err != nil {
			return "", err
		}
		why := send.why
		if send.why != recv.why {
			why = "sends are " + send.why + "; receives by " + recv.why
		}
		if why != "" && !slices.Contains(all, why) {
			all = append(all, why)
		}
	}
	return strings.Join(all, "; "), nil
}

// gpuEnd is what an end has of its GPU.
type gpuEnd struct {
	c          gpu.Context
	memory     gpu.Ptr // of the buffers that lie there, 0 if none do
	registered uintptr // host memory that it reaches, 0 for none
}

// clear makes no line of LL in the n bytes at p valid.
func (g *gpuEnd) clear(p gpu.Ptr, n int) error {
	s, err := g.c.NewStream()
	if err != nil {
		return err
	}
	return errors.Join(g.c.Fill(p, 0, n, s), g.c.Synchronize(s), g.c.CloseStream(s))
}

// close gives it back, after the registrations with devices.
func (g *gpuEnd) close() error {
	var errs []error
	if g.registered != 0 {
		errs = append(errs, g.c.UnregisterHost(g.registered))
	}
	if g.memory != 0 {
		errs = append(errs, g.c.Free(g.memory))
	}
	g.registered, g.memory = 0, 0
	return errors.Join(errs...)
}

// register registers the buffer of a protocol with the connection, where it lies.
func (e *end) register(p driver.Protocol) (err error) {
	switch {
	case e.sizes[p] == 0:
	case e.conn.Buffers[p] != nil:
		e.mrs[p], err = e.comm.RegMR(e.conn.Buffers[p])
	default:
		e.mrs[p], err = e.comm.RegMRGPU(e.conn.GPU.Buffers[p], e.sizes[p])
	}
	return err
}
