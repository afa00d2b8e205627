package socketboot

import "fmt"

// check tells whether m is what the end of role from may send. It serves both ends.
func (m *Metadata) check(l Layout, from Role) error {
	s := l.shape()
	if err := checkCount("ndevs", len(m.Devs), s.maxDevs); err != nil {
		return err
	}
	if err := checkCount("number of queue pairs", len(m.QPs), MaxQPs); err != nil {
		return err
	}
	if err := m.checkQPs(); err != nil {
		return err
	}
	for i := range m.Devs {
		if err := m.Devs[i].check(i); err != nil {
			return err
		}
		if m.Devs[i].LinkLayer != m.Devs[0].LinkLayer {
			return &FieldError{fmt.Sprintf("devs[%d].link_layer", i), m.Devs[i].LinkLayer,
				fmt.Sprintf("%d, as devs[0] has", m.Devs[0].LinkLayer)}
		}
	}
	if len(m.DevName) >= s.nameLen {
		return &FieldError{"length of devName", len(m.DevName), fmt.Sprintf("below %d", s.nameLen)}
	}
	if m.DevName == "" || !printable(m.DevName) {
		return &FieldError{"devName", fmt.Sprintf("%.64q", m.DevName), "printable ASCII"}
	}
	if s.tc == 0 && (m.TrafficClass != 0 || m.ServiceLevel != 0) {
		return &FieldError{"tc, sl", fmt.Sprintf("%d, %d", m.TrafficClass, m.ServiceLevel), "0: this layout does not carry them"}
	}
	return m.checkFIFO(s, from)
}

func (m *Metadata) checkQPs() error {
	type key struct {
		dev int
		qpn uint32
	}
	seen := make(map[key]int, len(m.QPs))
	for i, q := range m.QPs {
		// 0 and 1 are the management queue pairs, all ones means multicast.
		if q.QPN < 2 || q.QPN >= 1<<24-1 {
			return &FieldError{fmt.Sprintf("qpInfo[%d].qpn", i), q.QPN, "2 to 16777214"}
		}
		if q.DevIndex < 0 || q.DevIndex >= len(m.Devs) {
			return &FieldError{fmt.Sprintf("qpInfo[%d].devIndex", i), q.DevIndex, fmt.Sprintf("below ndevs, which is %d", len(m.Devs))}
		}
		k := key{q.DevIndex, q.QPN}
		if j, twice := seen[k]; twice {
			return &FieldError{fmt.Sprintf("qpInfo[%d].qpn", i), q.QPN, fmt.Sprintf("another than qpInfo[%d] has on the same device", j)}
		}
		seen[k] = i
	}
	return nil
}

func (d *DevInfo) check(i int) error {
	bad := func(field string, value any, want string) error {
		return &FieldError{fmt.Sprintf("devs[%d].%s", i, field), value, want}
	}
	switch {
	case d.Port == 0:
		return bad("ib_port", d.Port, "1 to 255")
	case d.MTU < 1 || d.MTU > 5:
		return bad("mtu", d.MTU, "1 to 5 (256 to 4096 bytes)")
	case d.LinkLayer != LinkInfiniBand && d.LinkLayer != LinkEthernet:
		return bad("link_layer", d.LinkLayer, "1 (InfiniBand) or 2 (Ethernet)")
	case d.LID > 0xffff:
		return bad("lid", d.LID, "at most 65535")
	case d.LinkLayer == LinkInfiniBand && (d.LID == 0 || d.LID >= 0xc000):
		return bad("lid", d.LID, "1 to 49151: an InfiniBand port needs a unicast address")
	case d.LinkLayer == LinkEthernet && d.GID == [16]byte{}:
		return bad("gid", "::", "the address of the port: RoCE needs one")
	case d.GID[0] == 0xff:
		return bad("gid", fmt.Sprintf("%x", d.GID), "not a multicast address")
	case d.FIFORKey == 0:
		return bad("fifoRkey", d.FIFORKey, "not 0")
	}
	return nil
}

// checkFIFO holds the connector to the alignment that NCCL asserts: a CTS entry must not be torn by relaxed ordering. Its errors
// do not show the address, as they go to logs.
func (m *Metadata) checkFIFO(s *shape, from Role) error {
	length, align := uint64(ctsFIFOLen), uint64(32)
	if from == Acceptor {
		length, align = sizesFIFOLen, 4
		if s.completionRecs {
			length = completionRecordsLen
		}
	}
	switch {
	case m.FIFOAddr == 0:
		return &FieldError{"fifoAddr", 0, "not 0"}
	case m.FIFOAddr%align != 0:
		return &FieldError{"fifoAddr", fmt.Sprintf("%d past a multiple of %d", m.FIFOAddr%align, align), "a multiple"}
	case m.FIFOAddr+length < m.FIFOAddr:
		return &FieldError{"fifoAddr", "at the end of memory", fmt.Sprintf("%d bytes behind it", length)}
	}
	return nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
