package qp

import (
	"encoding/binary"
	"fmt"

	"github.com/purerdma/purerdma/ibverbs"
)

// InfoSize is the bytes of an Info that AppendBinary writes.
const InfoSize = 32

const infoVersion = 1

// AppendBinary appends the Info in InfoSize bytes, most significant byte first,
// for programs that have no format of their own to tell it to the peer: version,
// link layer, MTU code, port, QPN, PSN, LID, two zero bytes, GID. It never fails.
func (i Info) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, infoVersion, byte(i.LinkLayer), byte(i.MTU), i.Port)
	b = binary.BigEndian.AppendUint32(b, i.QPN)
	b = binary.BigEndian.AppendUint32(b, i.PSN)
	b = binary.BigEndian.AppendUint16(b, i.LID)
	b = append(b, 0, 0)
	return append(b, i.GID[:]...), nil
}

// MarshalBinary is AppendBinary into new memory.
func (i Info) MarshalBinary() ([]byte, error) { return i.AppendBinary(make([]byte, 0, InfoSize)) }

// UnmarshalBinary reads what AppendBinary wrote. It checks the form only: whether
// the values make sense here, Connect sees.
func (i *Info) UnmarshalBinary(b []byte) error {
	switch {
	case len(b) != InfoSize:
		return fmt.Errorf("queue pair information of %d bytes, it has %d", len(b), InfoSize)
	case b[0] != infoVersion:
		return fmt.Errorf("queue pair information of version %d, this is version %d", b[0], infoVersion)
	}
	*i = Info{LinkLayer: ibverbs.LinkLayer(b[1]), MTU: ibverbs.MTU(b[2]), Port: b[3], QPN: binary.BigEndian.Uint32(b[4:]),
		PSN: binary.BigEndian.Uint32(b[8:]), LID: binary.BigEndian.Uint16(b[12:]), GID: ibverbs.GID(b[16:])}
	return nil
}
