package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"testing"
)

// Cable is two hosts without devices of the kernel's and a cable between them, to run a RoCE device in user space on each: two network
// namespaces, and one address in either. It is made as that of rxe0 and rxe1.
type Cable struct {
	Addrs [2]netip.Addr

	namespaces [2]*os.File
}

// NewCable makes a cable with this MTU, and takes it away when the test ends. It skips the test outside the guest.
func NewCable(t testing.TB, mtu int) *Cable {
	t.Helper()
	if !Inside() {
		t.Skip("makes network devices and network namespaces, so it runs only in the lab's guest (lab/vm)")
	}
	c := &Cable{Addrs: [2]netip.Addr{netip.MustParseAddr("10.9.2.1"), netip.MustParseAddr("10.9.2.2")}}
	t.Cleanup(func() {
		if err := c.remove(); err != nil {
			t.Errorf("the cable between two hosts: %v", err)
		}
	})
	if err := c.create(mtu); err != nil {
		t.Fatalf("the cable between two hosts: %v", err)
	}
	return c
}

func (c *Cable) create(mtu int) (err error) {
	ends := [2]string{"c0", "c1"}
	for i := range ends {
		if c.namespaces[i], err = newNamespace(); err != nil {
			return err
		}
	}
	err = run("ip", "link", "add", ends[0], "mtu", strconv.Itoa(mtu), "type", "veth", "peer", "name", ends[1], "mtu", strconv.Itoa(mtu))
	if err != nil {
		return err
	}
	for i, device := range ends {
		if err := run("ip", "link", "set", device, "netns", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), c.namespaces[i].Fd())); err != nil {
			return err
		}
		if err := c.Do(i, func() error { return up(device, c.Addrs[i:i+1]) }); err != nil {
			return err
		}
	}
	return nil
}

// remove closes the namespaces, and the devices go with them.
func (c *Cable) remove() error {
	var errs []error
	for _, f := range c.namespaces {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Do calls f on a thread that is in the namespace of host i, as [Host.Do] does.
func (c *Cable) Do(i int, f func() error) error { return within(c.namespaces[i], f) }
