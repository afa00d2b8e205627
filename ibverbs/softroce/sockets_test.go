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
	t.Setenv(linkEnv, "pcap")
	devices, _ := New(Config{Network: networkFromEnv()}).Devices()
	if _, err := devices[0].Open(); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), linkEnv+"=pcap") || !strings.Contains(err.Error(), "udp or packet") {
		t.Errorf("%v", err)
	}
}
