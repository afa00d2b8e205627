package socketboot

import (
	"encoding/binary"
	"fmt"
)

// DevList is the first thing that each end says of itself, ncclNetVDeviceProps: of which devices its logical NIC is made.
// Only their number concerns the peer.
type DevList struct {
	Devs  []int32 // the sender's own numbers for its devices
	OOORQ bool    // every device can receive out of order; carried from Layout230 on
}

// check serves both ends: it is applied to what arrives and to what will be sent.
func (d DevList) check(l Layout) error {
	if err := checkCount("ndevs", len(d.Devs), l.MaxDevs()); err != nil {
		return err
	}
	for i, n := range d.Devs {
		if n < 0 {
			return &FieldError{fmt.Sprintf("devs[%d]", i), n, "0 or more"}
		}
	}
	return nil
}

func (d DevList) append(l Layout, b []byte) ([]byte, error) {
	if err := d.check(l); err != nil {
		return b, err
	}
	msg := make([]byte, l.DevListLen())
	binary.LittleEndian.PutUint32(msg, uint32(len(d.Devs)))
	for i, n := range d.Devs {
		binary.LittleEndian.PutUint32(msg[4+4*i:], uint32(n))
	}
	if d.OOORQ && l >= Layout230 {
		msg[len(msg)-1] = 1
	}
	return append(b, msg...), nil
}

func decodeDevList(l Layout, b []byte) (DevList, error) {
	if len(b) != l.DevListLen() {
		return DevList{}, &FieldError{"length of the device list", len(b), fmt.Sprint(l.DevListLen())}
	}
	n := int(int32(binary.LittleEndian.Uint32(b)))
	if err := checkCount("ndevs", n, l.MaxDevs()); err != nil {
		return DevList{}, err
	}
	d := DevList{Devs: make([]int32, n)}
	for i := range d.Devs {
		d.Devs[i] = int32(binary.LittleEndian.Uint32(b[4+4*i:]))
	}
	if l >= Layout230 {
		flag := b[len(b)-1]
		if flag > 1 {
			return DevList{}, &FieldError{"oooRq", flag, "0 or 1"}
		}
		d.OOORQ = flag == 1
	}
	return d, d.check(l)
}

func checkCount(field string, n, most int) error {
	if n < 1 || n > most {
		return &FieldError{field, n, fmt.Sprintf("1 to %d", most)}
	}
	return nil
}
