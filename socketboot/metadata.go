package socketboot

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Metadata is what each end says of its queue pairs and devices, ncclIbConnectionMetadata.
type Metadata struct {
	QPs     []QPInfo  // 1 to MaxQPs; queue pair i of one end is connected to queue pair i of the other
	Devs    []DevInfo // 1 to Layout.MaxDevs
	DevName string    // printable ASCII, "mlx5_0" or "mlx5_0+mlx5_1" for a merged device
	// FIFOAddr is the remote address of the connector's CTS FIFO, or of the acceptor's sizes FIFO.
	FIFOAddr uint64
	// TrafficClass and ServiceLevel are those that the acceptor shall use too; carried from Layout226 on, and 0 before. NCCL puts a
	// job's traffic class into both, so ServiceLevel may be more than a device knows (15, on Ethernet 7): reduce it before use.
	TrafficClass, ServiceLevel uint8
}

// QPInfo is one queue pair, ncclIbQpInfo.
type QPInfo struct {
	QPN          uint32 // 24 bits
	ECE          ECE
	ECESupported bool
	DevIndex     int // index into the Devs of the same Metadata
}

// ECE are options of enhanced connection establishment, struct ibv_ece: the device's own, opaque to others.
type ECE struct{ VendorID, Options, CompMask uint32 }

// DevInfo is one device and port, ncclIbDevInfo.
type DevInfo struct {
	LID       uint32
	Port      uint8 // from 1
	MTU       uint8 // the port's active MTU, enum ibv_mtu: 1 is 256 bytes, 5 is 4096
	LinkLayer uint8 // LinkInfiniBand or LinkEthernet, the same for all devices
	GID       [16]byte
	FIFORKey  uint32 // remote key of the memory at FIFOAddr on this device
}

// Link layers, IBV_LINK_LAYER_*.
const (
	LinkInfiniBand = 1
	LinkEthernet   = 2
)

// Lengths of what lies at FIFOAddr: 256 rows of 8 CTS entries of 64 bytes, of 8 sizes of 4 bytes, of completion records of 160.
const (
	ctsFIFOLen           = 256 * 8 * 64
	sizesFIFOLen         = 256 * 8 * 4
	completionRecordsLen = 256 * 160
)

// Append encodes m after b, padding and all. What the peer would refuse is refused here too: see DecodeMetadata.
func (m *Metadata) Append(l Layout, from Role, b []byte) ([]byte, error) {
	if err := m.check(l, from); err != nil {
		return b, err
	}
	s, le := l.shape(), binary.LittleEndian
	msg := make([]byte, s.metadata)
	for i := range m.QPs {
		m.QPs[i].put(msg[i*qpInfoLen:])
	}
	for i := range m.Devs {
		m.Devs[i].put(msg[s.devs+i*devInfoLen:])
	}
	copy(msg[s.name:], m.DevName)
	le.PutUint64(msg[s.fifoAddr:], m.FIFOAddr)
	le.PutUint32(msg[s.ndevs:], uint32(len(m.Devs)))
	if s.tc != 0 {
		le.PutUint32(msg[s.tc:], uint32(m.TrafficClass))
		le.PutUint32(msg[s.sl:], uint32(m.ServiceLevel))
	}
	return append(b, msg...), nil
}

// DecodeMetadata decodes what the end of role from sent, and checks every field of it; the error is a [FieldError] that names
// the first bad one. The queue pairs are those before the first number of 0, since their count is not sent.
func DecodeMetadata(l Layout, from Role, b []byte) (Metadata, error) {
	var m Metadata
	s, le := l.shape(), binary.LittleEndian
	if len(b) != s.metadata {
		return m, &FieldError{"length of the metadata", len(b), fmt.Sprint(s.metadata)}
	}
	ndevs := int(int32(le.Uint32(b[s.ndevs:])))
	if err := checkCount("ndevs", ndevs, s.maxDevs); err != nil {
		return m, err
	}
	var err error
	if m.QPs, err = decodeQPs(b[:qpInfoLen*MaxQPs]); err != nil {
		return m, err
	}
	if i, n := firstQPN(b[qpInfoLen*MaxQPs:][:s.resiliency*qpInfoLen]); n != 0 {
		return m, &FieldError{fmt.Sprintf("resiliencyInfo[%d].qpn", i), n,
			"0: port failover is not supported, set NCCL_IB_RESILIENCY_PORT_FAILOVER=0 at the peer"}
	}
	m.Devs = make([]DevInfo, ndevs)
	for i := range m.Devs {
		if err := m.Devs[i].decode(i, b[s.devs+i*devInfoLen:]); err != nil {
			return m, err
		}
	}
	name := b[s.name:][:s.nameLen]
	end := bytes.IndexByte(name, 0)
	if end < 0 {
		return m, &FieldError{"devName", fmt.Sprintf("%.16q...", name), "an end: a byte of 0"}
	}
	m.DevName = string(name[:end])
	m.FIFOAddr = le.Uint64(b[s.fifoAddr:])
	if s.tc != 0 {
		if m.TrafficClass, err = decodeByte("tc", b[s.tc:]); err != nil {
			return m, err
		}
		if m.ServiceLevel, err = decodeByte("sl", b[s.sl:]); err != nil {
			return m, err
		}
	}
	return m, m.check(l, from)
}

func (q *QPInfo) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, q.QPN)
	le.PutUint32(b[4:], q.ECE.VendorID)
	le.PutUint32(b[8:], q.ECE.Options)
	le.PutUint32(b[12:], q.ECE.CompMask)
	if q.ECESupported {
		le.PutUint32(b[16:], 1)
	}
	le.PutUint32(b[20:], uint32(q.DevIndex))
}

func decodeQPs(b []byte) ([]QPInfo, error) {
	le := binary.LittleEndian
	n := 0
	for n < MaxQPs && le.Uint32(b[n*qpInfoLen:]) != 0 {
		n++
	}
	if i, qpn := firstQPN(b[n*qpInfoLen:]); qpn != 0 {
		return nil, &FieldError{fmt.Sprintf("qpInfo[%d].qpn", n+i), qpn, fmt.Sprintf("0, as qpInfo[%d].qpn is 0", n)}
	}
	qps := make([]QPInfo, n)
	for i := range qps {
		q := b[i*qpInfoLen:]
		supported := le.Uint32(q[16:])
		if supported > 1 {
			return nil, &FieldError{fmt.Sprintf("qpInfo[%d].ece_supported", i), supported, "0 or 1"}
		}
		qps[i] = QPInfo{
			QPN:          le.Uint32(q),
			ECE:          ECE{le.Uint32(q[4:]), le.Uint32(q[8:]), le.Uint32(q[12:])},
			ECESupported: supported == 1,
			DevIndex:     int(int32(le.Uint32(q[20:]))),
		}
	}
	return qps, nil
}

// firstQPN finds the first queue pair number in an array of qpInfo that is not 0.
func firstQPN(b []byte) (i int, qpn uint32) {
	for ; i*qpInfoLen < len(b); i++ {
		if qpn = binary.LittleEndian.Uint32(b[i*qpInfoLen:]); qpn != 0 {
			return i, qpn
		}
	}
	return i, 0
}

func (d *DevInfo) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, d.LID)
	b[4] = d.Port
	le.PutUint32(b[8:], uint32(d.MTU))
	b[12] = d.LinkLayer
	copy(b[16:32], d.GID[:])
	le.PutUint32(b[32:], d.FIFORKey)
}

func (d *DevInfo) decode(i int, b []byte) (err error) {
	le := binary.LittleEndian
	*d = DevInfo{LID: le.Uint32(b), Port: b[4], LinkLayer: b[12], GID: [16]byte(b[16:32]), FIFORKey: le.Uint32(b[32:])}
	d.MTU, err = decodeByte(fmt.Sprintf("devs[%d].mtu", i), b[8:])
	return err
}

// decodeByte reads an int of the peer's that means something only between 0 and 255.
func decodeByte(field string, b []byte) (uint8, error) {
	n := int32(binary.LittleEndian.Uint32(b))
	if n < 0 || n > 255 {
		return 0, &FieldError{field, n, "0 to 255"}
	}
	return uint8(n), nil
}
