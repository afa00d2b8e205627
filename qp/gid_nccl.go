package qp

import (
	"fmt"
	"maps"
	"slices"

	"github.com/purerdma/purerdma/ibverbs"
)

// ChooseGIDAsNCCL takes the GID that NCCL 2.25 takes by itself, of want's Family
// (AnyFamily is IPv4) and Range. On Ethernet it goes through the table from
// index 1 on and moves from the GID it has, index 0 at first, to one of the
// wanted family and range, or of RoCE v2 where the one it has is neither valid
// nor of v2. So it may stay at index 0, mostly link-local, where ChooseGID finds
// better or an error. On InfiniBand it is index 1 if that has a routable FLID,
// else 0. Unlike NCCL it refuses an empty slot.
func ChooseGIDAsNCCL(table []ibverbs.GIDEntry, want GIDWant) (Choice, error) {
	slots := map[int]ibverbs.GIDEntry{}
	for _, e := range table {
		slots[e.Index] = e
	}
	rule := ncclRule{want: want, family: want.Family}
	if rule.family == AnyFamily {
		rule.family = IPv4
	}
	at, infiniband := 0, len(table) > 0 && table[0].Type == ibverbs.GIDTypeIB
	if infiniband {
		if flid(slots[1].GID) != 0 {
			at = 1
		}
	} else {
		for _, i := range slices.Sorted(maps.Keys(slots)) {
			if i > 0 && rule.takes(slots[at], slots[i]) {
				at = i
			}
		}
	}
	c := Choice{GIDEntry: slots[at], Rejected: map[int]string{}}
	for i := range slots {
		if i != at {
			c.Rejected[i] = fmt.Sprintf("NCCL's rule takes index %d", at)
		}
	}
	if c.GID.IsZero() {
		c.Rejected[at] = "NCCL's rule takes this slot, which is empty"
		return Choice{}, noGID(table, c.Rejected, want)
	}
	c.Reason = describe(c.GIDEntry) + ", by NCCL's rule"
	return c, nil
}

// ncclRule is ncclUpdateGidIndex.
type ncclRule struct {
	want   GIDWant
	family Family
}

// takes says that NCCL moves from the entry it has to the next.
func (r ncclRule) takes(has, next ibverbs.GIDEntry) bool {
	family := familyOf(next.GID)
	inRange := !r.want.Range.IsValid() || r.want.Range.Contains(next.GID.Addr())
	if family != familyOf(has.GID) && family == r.family && inRange {
		return true
	}
	if family != r.family || !ncclValid(next.GID) || !inRange {
		return false
	}
	return (has.Type != next.Type || !ncclValid(has.GID)) && next.Type == ibverbs.GIDTypeRoCEv2
}

// ncclValid is neither zero nor link-local.
func ncclValid(g ibverbs.GID) bool { return !g.IsZero() && (g[0] != 0xfe || g[1] != 0x80) }

// flid is the forwarding LID in a GID that crosses InfiniBand subnets.
func flid(g ibverbs.GID) uint16 { return uint16(g[4])<<8 | uint16(g[5]) }
