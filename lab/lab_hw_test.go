//go:build hw && linux

package lab_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/purerdma/purerdma/lab"
)

const (
	messages = 200
	mtu      = 1024
)

// pingpong lets the C program ibv_rc_pingpong send messages of one packet from the first device to the second and back.
func pingpong(t *testing.T, server, client string, gid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := func(device, host string) (*exec.Cmd, *bytes.Buffer) {
		arguments := []string{"-d", device, "-g", fmt.Sprint(gid), "-n", fmt.Sprint(messages), "-s", fmt.Sprint(mtu), "-c"}
		if host != "" {
			arguments = append(arguments, host)
		}
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, "ibv_rc_pingpong", arguments...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, &out
	}
	listening, serverOut := run(server, "")
	for { // the client gives up where nobody listens yet
		connecting, clientOut := run(client, "localhost")
		err := connecting.Wait()
		if err != nil && bytes.Contains(clientOut.Bytes(), []byte("Couldn't connect")) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			t.Errorf("client on %s: %v\n%s", client, err, clientOut)
		}
		break
	}
	if err := listening.Wait(); err != nil {
		t.Errorf("server on %s: %v\n%s", server, err, serverOut)
	}
}

func counters(t *testing.T, device string) lab.Counters {
	t.Helper()
	c, err := lab.ReadCounters(device)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The two ends really meet by the cable, whatever kind of address the GID stands for, and a device's talk with itself does not.
func TestLinkIsCrossed(t *testing.T) {
	if !lab.Inside() {
		t.Skip("is about the lab's guest (lab/vm)")
	}
	for _, test := range []struct {
		name, server, client string
		gid                  int
		crosses              bool
	}{
		{"link-local GIDs", "rxe0", "rxe1", 0, true},
		{"IPv4 GIDs", "rxe0", "rxe1", 1, true},
		{"IPv4 GIDs, the other way", "rxe1", "rxe0", 1, true},
		{"IPv6 GIDs", "rxe0", "rxe1", 2, true},
		{"one device", "rxe0", "rxe0", 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := [2]lab.Counters{counters(t, lab.End0), counters(t, lab.End1)}
			pingpong(t, test.server, test.client, test.gid)
			after := [2]lab.Counters{counters(t, lab.End0), counters(t, lab.End1)}
			for end := range before {
				packets, size := after[end].TxPackets-before[end].TxPackets, after[end].TxBytes-before[end].TxBytes
				t.Logf("end %d sent %d packets, %d bytes", end, packets, size)
				if crossed := packets >= messages && size >= messages*mtu; crossed != test.crosses {
					t.Errorf("end %d sent %d packets with %d bytes for %d messages of %d bytes: crossed is %v, want %v",
						end, packets, size, messages, mtu, crossed, test.crosses)
				}
			}
		})
	}
}

// Loss on the link is felt by RDMA traffic, and reliable connections get over it.
func TestDisturbedLink(t *testing.T) {
	lab.Disturb(t, lab.End0, "loss", "5%")
	pingpong(t, "rxe0", "rxe1", 1)
	out, err := exec.CommandContext(t.Context(), "tc", "-s", "qdisc", "show", "dev", lab.End0).CombinedOutput()
	if err != nil {
		t.Fatalf("tc: %v: %s", err, out)
	}
	if bytes.Contains(out, []byte("dropped 0,")) {
		t.Errorf("no packet of %d messages was lost at 5 %%:\n%s", messages, out)
	}
}
