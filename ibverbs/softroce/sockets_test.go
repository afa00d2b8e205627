package softroce

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// The environment chooses the network of the registered driver, and what it says
// wrongly is told when a device is opened.
func TestLinkOfTheEnvironment(t *testing.T) {
	for value, shows := range map[string]bool{"": false, "udp": false, "packet": true} {
		t.Run("is "+value, func(t *testing.T) {
			if value == "packet" {
				needPacketSockets(t)
			}
			t.Setenv(linkEnv, value)
			devices, _ := New(Config{Network: networkFromEnv()}).Devices()
			c, err := devices[0].Open()
			if err != nil {
				t.Fatal(err)
			}
			if got := c.(*softContext).e.link.ShowsID(); got != shows {
				t.Errorf("the link shows the Identification: %v, want %v", got, shows)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for value, want := range map[string][]string{"127.0.0.77": {"127.0.0.77"}, " 127.0.0.78, 127.0.0.79": {"127.0.0.78", "127.0.0.79"}, "": {"0.0.0.0", "0.0.0.0"}} {
		t.Setenv(addrsEnv, value)
		t.Setenv(linkEnv, "")
		devices, _ := New(fromEnv()).Devices()
		if len(devices) != len(want) {
			t.Fatalf("%q made %d devices, want %d", value, len(devices), len(want))
		}
		for i, w := range want {
			if value == "" {
				continue
			}
			c, err := devices[i].Open()
			if err != nil {
				t.Fatal(err)
			}
			if g, err := c.GIDs(1); err != nil || g[0].GID.Addr().Unmap().String() != w {
				t.Errorf("%q: device %d is at %v, want %s: %v", value, i, g, w, err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	for _, value := range []string{"eth0", "127.0.0.1,", "192.0.2.0/24"} {
		t.Setenv(addrsEnv, value)
		devices, _ := New(fromEnv()).Devices()
		if _, err := devices[0].Open(); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), addrsEnv+"="+value) {
			t.Errorf("%v", err)
		}
	}
	t.Setenv(linkEnv, "pcap")
	devices, _ := New(Config{Network: networkFromEnv()}).Devices()
	if _, err := devices[0].Open(); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), linkEnv+"=pcap") || !strings.Contains(err.Error(), "udp or packet") {
		t.Errorf("%v", err)
	}
}
