package rxe

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// group is a multicast group as a QP is attached to it.
type group struct {
	gid driver.GID
	lid uint16
}

// Multicast implements driver.QP. The kernel's attach makes the net device take
// packets of the group, but the network stack drops those of a group that nobody has
// joined: so it is joined here, for as long as the QP is attached.
func (q *QP) Multicast(g driver.GID, lid uint16, attach bool) error {
	switch {
	case q.ud == nil:
		return hint(syscall.EINVAL, "only UD queue pairs receive from multicast groups")
	case !g.Addr().IsMulticast():
		return hint(syscall.EINVAL, "%v is no multicast address", g.Addr())
	}
	of := group{g, lid}
	if attach {
		return q.attach(of)
	}
	if _, in := q.ud.groups[of]; !in {
		return hint(syscall.EINVAL, "the queue pair is not attached to it")
	}
	return q.detach(of)
}

func (q *QP) attach(of group) error {
	if _, in := q.ud.groups[of]; in {
		return nil
	}
	leave, err := q.dev.join(of.gid.Addr())
	if err != nil {
		return err
	}
	if err := q.dev.Dev.AttachMulticast(q.h, of.gid, of.lid); err != nil {
		return errors.Join(err, leave())
	}
	if q.ud.groups == nil {
		q.ud.groups = map[group]func() error{}
	}
	q.ud.groups[of] = leave
	return nil
}

func (q *QP) detach(of group) error {
	if err := q.dev.Dev.DetachMulticast(q.h, of.gid, of.lid); err != nil {
		return err
	}
	leave := q.ud.groups[of]
	delete(q.ud.groups, of)
	return leave()
}

// detachAll comes before the QP is destroyed, which the kernel refuses to do with
// one that is attached.
func (q *QP) detachAll() error {
	if q.ud == nil {
		return nil
	}
	var errs []error
	for of, leave := range q.ud.groups {
		if err := q.detach(of); err != nil {
			errs = append(errs, err, leave())
			delete(q.ud.groups, of)
		}
	}
	return errors.Join(errs...)
}

// join joins a group on the net devices of the port.
func (c *Context) join(group netip.Addr) (leave func() error, err error) {
	gids, err := c.GIDs(port)
	if err != nil {
		return nil, err
	}
	var netDevs []int
	for _, g := range gids {
		if g.IfIndex != 0 && !slices.Contains(netDevs, g.IfIndex) {
			netDevs = append(netDevs, g.IfIndex)
		}
	}
	leave, err = c.joinGroup(group, netDevs)
	if err != nil {
		return nil, hint(err, "the net device of port %d could not join %v: is it in another network namespace?", port, group)
	}
	return leave, nil
}
