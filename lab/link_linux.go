package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The ends of the guest's cable as [Counters] and [Disturb] know them. Device rxe0 is on v0, rxe1 on v1.
const (
	End0 = "v0"
	End1 = "v1"
)

// Counters are a network device's packets and bytes since it appeared, as /sys/class/net/<device>/statistics has them.
// RoCE packets of a Soft-RoCE device count, except those it sends to itself: these never meet the network device.
type Counters struct {
	TxPackets, TxBytes, RxPackets, RxBytes uint64
}

// ReadCounters reads the counters of a network device.
func ReadCounters(device string) (Counters, error) {
	var c Counters
	for name, value := range map[string]*uint64{
		"tx_packets": &c.TxPackets, "tx_bytes": &c.TxBytes, "rx_packets": &c.RxPackets, "rx_bytes": &c.RxBytes,
	} {
		text, err := os.ReadFile(filepath.Join("/sys/class/net", device, "statistics", name))
		if err != nil {
			return Counters{}, err
		}
		if *value, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
			return Counters{}, fmt.Errorf("%s of %s: %w", name, device, err)
		}
	}
	return c, nil
}

// Disturb makes packets that leave by a network device suffer, in the words of tc-netem(8), for instance "loss", "1%" or
// "delay", "2ms", and takes that back when the test ends. It skips the test outside the guest: it would disturb a real network.
func Disturb(t testing.TB, device string, netem ...string) {
	t.Helper()
	if !Inside() {
		t.Skip("disturbs the network of the machine, so it runs only in the lab's guest (lab/vm)")
	}
	if err := disturb(device, netem...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := undisturb(device); err != nil {
			t.Error(err)
		}
	})
}

func disturb(device string, netem ...string) error {
	return run("tc", append([]string{"qdisc", "replace", "dev", device, "root", "netem"}, netem...)...)
}

func undisturb(device string) error { return run("tc", "qdisc", "del", "dev", device, "root") }
