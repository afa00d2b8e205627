package tune

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/purerdma/purerdma/ibverbs"
)

// hintLab is for people without a device.
const hintLab = "load a driver for the adapter, or try in the lab's virtual machine: bench/qptune/lab"

// Candidate is a device as far as a benchmark cares.
type Candidate struct {
	Name     string
	Port     int // the first active one
	Link     ibverbs.LinkLayer
	Software bool
}

// Candidates lists the devices with an active port (port 0), or on which this port is active, hardware first. Its error says of each
// device why it was left out, if none is left.
func Candidates(port int, find ...ibverbs.Option) ([]Candidate, error) {
	found, err := ibverbs.Devices(find...)
	if len(found) == 0 {
		return nil, &ibverbs.Error{Op: "find RDMA devices", Err: errors.Join(ibverbs.ErrNoDevice, err), Hint: hintLab}
	}
	var list []Candidate
	why := []error{ibverbs.ErrNoDevice}
	for _, d := range found {
		c, err := candidate(d, port)
		if err != nil {
			why = append(why, err)
			continue
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, &ibverbs.Error{Op: "find RDMA devices", Err: errors.Join(why...), Hint: "no device can be used as it is: " + hintLab}
	}
	return list, nil
}

func candidate(d *ibverbs.Device, port int) (Candidate, error) {
	dev, err := d.Open()
	if err != nil {
		return Candidate{}, err
	}
	defer func() { _ = dev.Close() }()
	info := dev.Info()
	states := []string{}
	for p := 1; p <= info.Ports; p++ {
		if port != 0 && p != port {
			continue
		}
		attr, err := dev.Port(p)
		if err != nil {
			return Candidate{}, err
		}
		if attr.State == ibverbs.PortActive {
			return Candidate{Name: info.Name, Port: p, Link: attr.LinkLayer, Software: info.Software}, nil
		}
		states = append(states, fmt.Sprintf("port %d is %v", p, attr.State))
	}
	if len(states) == 0 {
		states = []string{fmt.Sprintf("it has no port %d", port)}
	}
	return Candidate{}, fmt.Errorf("%s: %s", info.Name, strings.Join(states, ", "))
}

// Pair chooses the devices of two ends on one machine, and says why. Two different ones are better, since then packets leave the
// device; they must be of one kind, so that nothing is measured but what was meant.
func Pair(list []Candidate) (sender, receiver Candidate, why string) {
	a := list[0]
	i := slices.IndexFunc(list, func(c Candidate) bool { return c.Name != a.Name && c.Link == a.Link && c.Software == a.Software })
	if i < 0 {
		return a, a, fmt.Sprintf("both ends on %s, the only device of its kind with an active port", a.Name)
	}
	return a, list[i], fmt.Sprintf("from %s to %s, the first two devices with active ports (-d chooses)", a.Name, list[i].Name)
}
