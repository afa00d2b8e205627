package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Host stands for a second host: a network namespace at the far end of a cable of its own, for a RoCE device in user space. At the
// near end is a Soft-RoCE device of the kernel, which sends only from the first namespace and holds RoCE's UDP port there.
type Host struct {
	Device    string       // the kernel's, at the near end
	Near, Far string       // network devices
	Kernel    []netip.Addr // addresses of the near end, IPv4 and IPv6
	Addrs     []netip.Addr // addresses of the far end, two of each

	namespace *os.File
}

// NewHost makes a host whose cable has this MTU, and takes it away when the test ends. It skips the test outside the guest.
func NewHost(t testing.TB, mtu int) *Host {
	t.Helper()
	if !Inside() {
		t.Skip("makes network devices and a network namespace, so it runs only in the lab's guest (lab/vm)")
	}
	h := &Host{Device: "rxe2", Near: "h0", Far: "h1"}
	for _, a := range []string{"10.9.1.1", "fd00:10:9:1::1"} {
		h.Kernel = append(h.Kernel, netip.MustParseAddr(a))
	}
	for _, a := range []string{"10.9.1.2", "10.9.1.3", "fd00:10:9:1::2", "fd00:10:9:1::3"} {
		h.Addrs = append(h.Addrs, netip.MustParseAddr(a))
	}
	t.Cleanup(func() {
		if err := h.remove(); err != nil {
			t.Errorf("the second host: %v", err)
		}
	})
	if err := h.create(mtu); err != nil {
		t.Fatalf("the second host: %v", err)
	}
	return h
}

func (h *Host) create(mtu int) (err error) {
	if h.namespace, err = newNamespace(); err != nil {
		return err
	}
	err = run("ip", "link", "add", h.Near, "mtu", strconv.Itoa(mtu), "type", "veth", "peer", "name", h.Far, "mtu", strconv.Itoa(mtu))
	if err != nil {
		return err
	}
	for _, device := range []string{h.Near, h.Far} {
		if err := inOrder(device); err != nil {
			return err
		}
	}
	if err := run("ip", "link", "set", h.Far, "netns", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.namespace.Fd())); err != nil {
		return err
	}
	if err := up(h.Near, h.Kernel); err != nil {
		return err
	}
	if err := h.Do(func() error { return up(h.Far, h.Addrs) }); err != nil {
		return err
	}
	if err := h.introduce(); err != nil {
		return err
	}
	if err := run("rdma", "link", "add", h.Device, "type", "rxe", "netdev", h.Near); err != nil {
		return err
	}
	return h.ready()
}

// inOrder has all packets of a flow that a network device receives taken by one processor, as adapters do. Otherwise each is taken by
// the processor that sent it, and a sender that moves to another overtakes itself.
func inOrder(device string) error {
	all := fmt.Sprintf("%x", 1<<runtime.NumCPU()-1)
	return os.WriteFile(filepath.Join("/sys/class/net", device, "queues/rx-0/rps_cpus"), []byte(all), 0)
}

// up gives a network device its addresses, which can be used at once.
func up(device string, addrs []netip.Addr) error {
	for _, a := range addrs {
		prefix := "/24"
		if a.Is6() {
			prefix = "/64"
		}
		args := []string{"addr", "add", a.String() + prefix, "dev", device}
		if a.Is6() {
			args = append(args, "nodad")
		}
		if err := run("ip", args...); err != nil {
			return err
		}
	}
	return run("ip", "link", "set", device, "up")
}

// introduce tells both ends each other's hardware address for good, so that a disturbed cable does not keep them from finding it.
func (h *Host) introduce() error {
	near, err := net.InterfaceByName(h.Near)
	if err != nil {
		return err
	}
	var far *net.Interface
	if err := h.Do(func() (err error) {
		if far, err = net.InterfaceByName(h.Far); err != nil {
			return err
		}
		return know(h.Far, h.Kernel, near.HardwareAddr)
	}); err != nil {
		return err
	}
	return know(h.Near, h.Addrs, far.HardwareAddr)
}

func know(device string, addrs []netip.Addr, hardware net.HardwareAddr) error {
	for _, a := range addrs {
		if err := run("ip", "neigh", "replace", a.String(), "lladdr", hardware.String(), "dev", device, "nud", "permanent"); err != nil {
			return err
		}
	}
	return nil
}

// ready waits until the device has its GIDs: it fills their table after it appears.
func (h *Host) ready() error {
	port := filepath.Join("/sys/class/infiniband", h.Device, "ports/1")
	for range 100 {
		state, _ := os.ReadFile(filepath.Join(port, "state"))
		gid, _ := os.ReadFile(filepath.Join(port, "gids", strconv.Itoa(len(h.Kernel)))) // behind the link-local one
		if strings.Contains(string(state), "ACTIVE") && strings.Trim(string(gid), "0:\n") != "" {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%s has no active port with its GIDs after 10 s", h.Device)
}

func (h *Host) remove() error {
	var errs []error
	if _, err := os.Stat(filepath.Join("/sys/class/infiniband", h.Device)); err == nil {
		errs = append(errs, run("rdma", "link", "del", h.Device))
	}
	if _, err := os.Stat(filepath.Join("/sys/class/net", h.Near)); err == nil {
		errs = append(errs, run("ip", "link", "del", h.Near))
	}
	if h.namespace != nil {
		errs = append(errs, h.namespace.Close())
	}
	return errors.Join(errs...)
}

// Do calls f on a thread that is in the host's namespace: sockets that f opens and commands that it starts are the host's, and
// stay so.
func (h *Host) Do(f func() error) error { return within(h.namespace, f) }

func within(namespace *os.File, f func() error) error {
	return onOwnThread(func() error {
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the namespace of another host: %w", err)
		}
		return f()
	})
}

// Disturb is [Disturb] for packets that leave the host.
func (h *Host) Disturb(t testing.TB, netem ...string) {
	t.Helper()
	if err := h.Do(func() error { return disturb(h.Far, netem...) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Do(func() error { return undisturb(h.Far) }); err != nil {
			t.Error(err)
		}
	})
}

// newNamespace is a new network namespace, whose loopback is up.
func newNamespace() (f *os.File, err error) {
	err = onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		if f, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		return run("ip", "link", "set", "lo", "up")
	})
	return f, err
}

// onOwnThread calls f on a thread that ends with it.
func onOwnThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

func run(name string, arguments ...string) error {
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, out)
	}
	return nil
}
