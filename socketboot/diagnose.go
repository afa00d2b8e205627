package socketboot

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
)

// diagnose guesses from what has arrived which layout the peer speaks, and finds a sentence on what to do.
func (m *Machine) diagnose(reason error) (looksLike []Layout, hint string) {
	var d *disagreement
	switch {
	case errors.As(reason, &d):
		return nil, d.hint
	case errors.Is(reason, ErrMagic):
		return nil, "the peer is not of this job: a port scanner, an old client, or another NCCL_SOCKET_MAGIC"
	case errors.Is(reason, ErrSocketType):
		return nil, "the peer came for another transport; set the same NCCL_NET at all ranks"
	}
	if h := networkHint(reason); h != "" {
		return nil, h
	}
	if !m.layout.valid() || len(m.raw) == 0 {
		return nil, ""
	}
	fromPeer := errors.Is(reason, ErrField) || errors.Is(reason, ErrSurplus) || errors.Is(reason, ErrPeerClosed) ||
		errors.Is(reason, os.ErrDeadlineExceeded)
	if !fromPeer {
		return nil, ""
	}
	for l := range Layout(layouts) {
		if l != m.layout && m.fits(l) {
			looksLike = append(looksLike, l)
		}
	}
	switch {
	case len(looksLike) > 0:
		return looksLike, "choose the layout of the peer's NCCL version"
	case m.role == Acceptor && m.state == StateRecvDevList && m.fitsOld():
		return nil, "the peer sent no device list, as NCCL 2.23.4 and older do"
	case m.state == StateConnecting && len(m.raw) == m.begin:
		return nil, "the peer may wait for longer metadata, as newer versions of NCCL do, or be slow to establish its queue pairs"
	}
	return nil, ""
}

func networkHint(reason error) string {
	switch {
	case errors.Is(reason, syscall.ECONNREFUSED):
		return "nobody listens there: is the listener's process alive, is a firewall between?"
	case errors.Is(reason, syscall.EHOSTUNREACH), errors.Is(reason, syscall.ENETUNREACH):
		return "no route to the address that the listener chose; choose its interface with NCCL_SOCKET_IFNAME there"
	}
	return ""
}

// fits tells whether the peer's bytes are those of an end with another layout: a valid device list, or that and valid metadata,
// and there they stop, as such an end has to wait for us. When our layout is the shorter one we stop reading before the peer has
// said all; what is missing then is taken to be 0.
func (m *Machine) fits(l Layout) bool {
	ourList, list := m.layout.DevListLen(), l.DevListLen()
	ourEnd, end := ourList+m.layout.MetadataLen(), list+l.MetadataLen()
	if list == ourList && end == ourEnd {
		return false
	}
	have := len(m.raw)
	lastFields := list + l.shape().ndevs + 4
	switch {
	case have == list && list != ourList, have > ourList && have < list:
		_, err := decodeDevList(l, padded(m.raw, list))
		return err == nil
	case have == end, have > ourEnd && have >= lastFields && have < end:
		devs, err := decodeDevList(l, m.raw[:list])
		if err != nil {
			return false
		}
		md, err := DecodeMetadata(l, m.role.other(), padded(m.raw[list:], l.MetadataLen()))
		return err == nil && len(md.Devs) == len(devs.Devs)
	}
	return false
}

func padded(b []byte, n int) []byte {
	p := make([]byte, n)
	copy(p, b)
	return p
}

// fitsOld tells whether the stream begins with a queue pair and not with a device list.
func (m *Machine) fitsOld() bool {
	if len(m.raw) < qpInfoLen {
		return false
	}
	le := binary.LittleEndian
	qpn, supported, dev := le.Uint32(m.raw), le.Uint32(m.raw[16:]), le.Uint32(m.raw[20:])
	return qpn >= 2 && qpn < 1<<24 && supported <= 1 && dev < 4
}
