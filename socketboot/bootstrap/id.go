package bootstrap

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/purerdma/purerdma/socketboot"
)

// ID is NCCL's ncclUniqueId: the magic of the job at byte 0 and the root's address (28 bytes) at byte 8. Whoever has it and can reach
// the address can join, unless connections are secured.
type ID [128]byte

// ErrID is in every error about an ID.
var ErrID = errors.New("bad job id")

// addrLen is the length of NCCL's ncclSocketAddress.
const addrLen = 28

// IDFor makes the ID of a root at a known address. magic 0 means NCCL's constant, which NCCL uses with NCCL_COMM_ID.
func IDFor(root netip.AddrPort, magic uint64) ID {
	if magic == 0 {
		magic = socketboot.Magic
	}
	var id ID
	binary.LittleEndian.PutUint64(id[:], magic)
	putAddr(id[8:], root)
	return id
}

// ParseID reads what [ID.String] wrote.
func ParseID(s string) (ID, error) {
	var id ID
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("bootstrap: %w: want %d hexadecimal digits", ErrID, 2*len(id))
	}
	copy(id[:], b)
	return id, id.Check()
}

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Magic is what every connection of the job begins with.
func (id ID) Magic() uint64 { return binary.LittleEndian.Uint64(id[:]) }

// Root is where the root listens; not valid if the ID is not.
func (id ID) Root() netip.AddrPort { return getAddr(id[8:]) }

// Check tells what is wrong with an ID before anything is dialed. The error is an [ErrID].
func (id ID) Check() error {
	switch {
	case id == ID{}:
		return fmt.Errorf("bootstrap: %w: it is all 0; was it ever received from the root?", ErrID)
	case id.Magic() == 0:
		return fmt.Errorf("bootstrap: %w: magic 0", ErrID)
	}
	if err := checkAddr(id.Root()); err != nil {
		return fmt.Errorf("bootstrap: %w: root address: %w", ErrID, err)
	}
	return nil
}

func newMagic() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// putAddr writes NCCL's ncclSocketAddress.
func putAddr(b []byte, a netip.AddrPort) {
	h := socketboot.HandleFor(a, 0)
	copy(b[:addrLen], h[:])
}

func getAddr(b []byte) netip.AddrPort {
	var h socketboot.Handle
	copy(h[:addrLen], b)
	return h.Addr()
}

func checkAddr(a netip.AddrPort) error {
	switch {
	case !a.IsValid():
		return errors.New("neither IPv4 nor IPv6")
	case a.Port() == 0:
		return errors.New("port 0 of " + a.Addr().String())
	case a.Addr().IsUnspecified(), a.Addr().IsMulticast():
		return errors.New(a.Addr().String() + " is not the address of one host")
	}
	return nil
}

// list is ranks in words, the first of them if they are many.
func list(ranks []int) string {
	s := ""
	for i, r := range ranks {
		if i == 8 {
			return s + " and " + strconv.Itoa(len(ranks)-i) + " more"
		}
		if i > 0 {
			s += ", "
		}
		s += strconv.Itoa(r)
	}
	return s
}
