package qp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/purerdma/purerdma/ibverbs"
)

// Family is a family of addresses.
type Family uint8

// Families. AnyFamily prefers IPv4, as NCCL does.
const (
	AnyFamily Family = iota
	IPv4
	IPv6
)

// String is the name of the family.
func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	}
	return "any family"
}

// GIDWant is what a GID must be like. What is zero does not matter.
type GIDWant struct {
	Family Family       // NCCL_IB_ADDR_FAMILY
	Range  netip.Prefix // NCCL_IB_ADDR_RANGE
	NetDev string       // "eth2"
	// Match has the last word about entries that are as wanted otherwise.
	Match func(ibverbs.GIDEntry) bool
	// AsNCCL follows NCCL's rule, ChooseGIDAsNCCL, by Family and Range.
	AsNCCL bool
}

// Choice is a GID, why it was taken, and by index of the table why each other
// was not.
type Choice struct {
	ibverbs.GIDEntry
	Reason   string
	Rejected map[int]string
}

// ErrNoGID is wrapped by the error of a table with no usable GID.
var ErrNoGID = errors.New("no usable GID")

// ChooseGID takes the best GID of a table that is as wanted: any before loopback, which
// a device in user space may have, RoCE v2 (or InfiniBand) before RoCE v1, routable before link-local, IPv4 before IPv6, of
// the port's own net device before others, then the lower index. The port's own
// net device is that of the first entry, which Linux makes from the device
// itself; VLANs, macvlans and bridges on top of it come later. Private and
// unique local addresses are routable: an administrator set them. It looks at
// nothing but its arguments.
func ChooseGID(table []ibverbs.GIDEntry, want GIDWant) (Choice, error) {
	if want.AsNCCL {
		return ChooseGIDAsNCCL(table, want)
	}
	table = slices.Clone(table)
	slices.SortStableFunc(table, func(a, b ibverbs.GIDEntry) int { return a.Index - b.Index })
	own := ownNetDev(table)
	var best rank
	var c Choice
	for _, e := range table {
		if unfit(e, want) != "" {
			continue
		}
		if r := rankOf(e, own); best == nil || r.better(best) {
			best, c.GIDEntry = r, e
		}
	}
	c.Rejected = map[int]string{}
	for _, e := range table {
		switch why := unfit(e, want); {
		case why != "":
			c.Rejected[e.Index] = why
		case e.Index != c.Index:
			c.Rejected[e.Index] = best.worse(rankOf(e, own), c.Index)
		}
	}
	if best == nil {
		return Choice{}, noGID(table, c.Rejected, want)
	}
	c.Reason = describe(c.GIDEntry) + best.because(c.Rejected)
	return c, nil
}

// ChooseGID is the GID that New takes on a port of this link layer and table:
// the one at GIDIndex, or the best that is as GID wants. On InfiniBand NCCL's
// rule is followed: a GID counts only between subnets there.
func (p *Params) ChooseGID(link ibverbs.LinkLayer, table []ibverbs.GIDEntry) (Choice, error) {
	switch {
	case p.GIDIndex >= 0:
		return gidAt(table, p.GIDIndex)
	case link == ibverbs.LinkInfiniBand:
		return ChooseGIDAsNCCL(table, p.GID)
	}
	return ChooseGID(table, p.GID)
}

// ownNetDev is the net device of the first entry that names one.
func ownNetDev(table []ibverbs.GIDEntry) string {
	for _, e := range table {
		if e.NetDev != "" {
			return e.NetDev
		}
	}
	return ""
}

// unfit says why e cannot be taken at all, "" if it can.
func unfit(e ibverbs.GIDEntry, want GIDWant) string {
	addr := e.GID.Addr()
	switch {
	case e.GID.IsZero():
		return "empty"
	case addr.IsMulticast(), addr.IsUnspecified():
		return "not the address of a host"
	case e.Type != ibverbs.GIDTypeIB && e.NetDev == "" && e.IfIndex != 0:
		return otherNamespace
	case want.NetDev != "" && e.NetDev != want.NetDev:
		return fmt.Sprintf("on net device %q, asked for was %q", e.NetDev, want.NetDev)
	case want.Family != AnyFamily && familyOf(e.GID) != want.Family:
		return fmt.Sprintf("%v, asked for was %v", familyOf(e.GID), want.Family)
	case want.Range.IsValid() && !want.Range.Contains(addr):
		return fmt.Sprintf("not in %v, which was asked for", want.Range)
	case want.Match != nil && !want.Match(e):
		return "not what was asked for"
	}
	return ""
}

const otherNamespace = "its net device lives in another network namespace"

func familyOf(g ibverbs.GID) Family {
	if g.Addr().Is4() {
		return IPv4
	}
	return IPv6
}

// linkLocal says that packets to g cross no router.
func linkLocal(g ibverbs.GID) bool { return g.Addr().IsLinkLocalUnicast() }

// rank is which criteria an entry meets, the heavier first; all ranks have the
// same ones.
type rank []criterion

// criterion has the words for an entry that does not meet it.
type criterion struct {
	has  bool
	less string
}

func rankOf(e ibverbs.GIDEntry, own string) rank {
	return rank{
		{!e.GID.Addr().IsLoopback(), "loopback, which only this machine reaches"},
		{e.Type != ibverbs.GIDTypeRoCEv1, "RoCE v1"},
		{e.Type == ibverbs.GIDTypeIB || !linkLocal(e.GID), "link-local, which no router forwards"},
		{familyOf(e.GID) == IPv4, "IPv6"},
		{e.Type == ibverbs.GIDTypeIB || e.NetDev != "", "without a known net device"},
		{e.NetDev == own, fmt.Sprintf("on net device %q, not the port's own", e.NetDev)},
	}
}

// better says that r wins over o, of which the index is lower.
func (r rank) better(o rank) bool {
	i := r.differs(o)
	return i >= 0 && r[i].has
}

// worse is why loser has lost against r, the entry at index winner.
func (r rank) worse(loser rank, winner int) string {
	if i := r.differs(loser); i >= 0 {
		return fmt.Sprintf("%s; index %d is not", loser[i].less, winner)
	}
	return fmt.Sprintf("as good as index %d, which comes first", winner)
}

// differs is the heaviest criterion that only one of the two has, -1 if there
// is none.
func (r rank) differs(o rank) int {
	for i := range r {
		if r[i].has != o[i].has {
			return i
		}
	}
	return -1
}

// because says what a choice has against it, or that there was none.
func (r rank) because(rejected map[int]string) string {
	if len(rejected) == 0 {
		return ", the only one"
	}
	var lacks []string
	for _, c := range r[:3] {
		if !c.has {
			lacks = append(lacks, c.less)
		}
	}
	if len(lacks) > 0 {
		return ", though " + strings.Join(lacks, " and ") + ": there is none better"
	}
	return ", the best by type, scope, family, net device and index"
}

// describe is an entry in words.
func describe(e ibverbs.GIDEntry) string {
	s := fmt.Sprintf("index %d, %v %v", e.Index, e.Type, e.GID.Addr())
	if e.NetDev != "" {
		s += " on " + e.NetDev
	}
	return s
}

// noGID says what the table has instead.
func noGID(table []ibverbs.GIDEntry, rejected map[int]string, want GIDWant) error {
	if len(table) == 0 {
		return &ibverbs.Error{Op: "choose GID", Err: fmt.Errorf("%w: the port's table is empty", ErrNoGID),
			Hint: "its net device is down, has no address, or lives in another network namespace (rdma system set netns, ip link set DEV netns)"}
	}
	var each []string
	for _, e := range table {
		each = append(each, fmt.Sprintf("%s: %s", describe(e), rejected[e.Index]))
	}
	hint := "give the net device an address that can be routed"
	switch {
	case !slices.ContainsFunc(table, func(e ibverbs.GIDEntry) bool { return rejected[e.Index] != otherNamespace }):
		hint = "run in the network namespace of the net device, or move the device into this one"
	case want.Family != AnyFamily || want.Range.IsValid() || want.NetDev != "" || want.Match != nil:
		hint = "ask for less, or give the net device such an address"
	}
	return &ibverbs.Error{Op: "choose GID", Err: fmt.Errorf("%w: %s", ErrNoGID, strings.Join(each, "; ")), Hint: hint}
}

// gidAt is the slot that was asked for.
func gidAt(table []ibverbs.GIDEntry, index int) (Choice, error) {
	c := Choice{Rejected: map[int]string{}}
	var used []string
	for _, e := range table {
		if e.GID.IsZero() {
			continue
		}
		used = append(used, describe(e))
		if e.Index == index {
			c.GIDEntry = e
		} else {
			c.Rejected[e.Index] = fmt.Sprintf("index %d was asked for", index)
		}
	}
	if c.GID.IsZero() {
		return Choice{}, &ibverbs.Error{Op: "choose GID", Err: fmt.Errorf("%w: index %d, which was asked for, is empty", ErrNoGID, index),
			Hint: "in use are: " + strings.Join(used, "; ")}
	}
	c.Reason = describe(c.GIDEntry) + ", asked for by index"
	return c, nil
}
