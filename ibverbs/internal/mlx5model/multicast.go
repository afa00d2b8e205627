package mlx5model

import (
	"net/netip"
	"slices"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// group is a multicast group that a queue pair receives from. On Ethernet the LID is what
// the program says.
type group struct {
	gid [16]byte
	lid uint16
}

// toGroup is the number of a queue pair that stands for all of a group.
const toGroup = 0xffffff

// Multicast LIDs are from firstMulticastLID on; the last is for another use.
const firstMulticastLID, permissiveLID = 0xc000, 0xffff

// blockLoopback in the flags of a queue pair keeps from it what it sends to its own groups.
const blockLoopback = 1 << 1

// multicast says whether an address is of a group, as rdma_is_multicast_addr does.
func multicast(gid [16]byte) bool { return netip.AddrFrom16(gid).Unmap().IsMulticast() }

// attachMulticast makes a queue pair receive from a group. To be in it already is no error.
func (c *call) attachMulticast(request []byte) ([]byte, error) {
	q, g, err := c.member(request)
	switch {
	case err != nil:
		return nil, err
	case slices.Contains(q.groups, g):
		return nil, nil
	case !multicast(g.gid), q.kind != driver.UD, !c.m.config.Ethernet && (g.lid < firstMulticastLID || g.lid == permissiveLID):
		return nil, syscall.EINVAL
	}
	q.groups = append(q.groups, g)
	return nil, nil
}

func (c *call) detachMulticast(request []byte) ([]byte, error) {
	q, g, err := c.member(request)
	if err != nil {
		return nil, err
	}
	i := slices.Index(q.groups, g)
	if i < 0 {
		return nil, syscall.EINVAL
	}
	q.groups = slices.Delete(q.groups, i, i+1)
	return nil, nil
}

func (c *call) member(request []byte) (*qp, group, error) {
	r := structOf[uapi.AttachMcast](request)
	q, err := object[*qp](c.context, uint64(r.QPHandle))
	if err != nil {
		return nil, group{}, syscall.EINVAL
	}
	return q, group{r.GID, r.MLID}, nil
}

// hears says whether a queue pair receives what from sends to a group.
func (q *qp) hears(from *qp, gid [16]byte, lid uint16) bool {
	if q == from && q.alone {
		return false
	}
	return slices.ContainsFunc(q.groups, func(g group) bool {
		return g.gid == gid && (q.c.m.config.Ethernet || g.lid == lid)
	})
}

// macOf is where a GID is on Ethernet: a group has a MAC that is made of it (RFC 1112, RFC 2464).
func macOf(gid [16]byte) [6]byte {
	switch {
	case !multicast(gid):
		return mac
	case netip.AddrFrom16(gid).Is4In6():
		return [6]byte{0x01, 0x00, 0x5e, gid[13] & 0x7f, gid[14], gid[15]}
	}
	return [6]byte{0x33, 0x33, gid[12], gid[13], gid[14], gid[15]}
}
