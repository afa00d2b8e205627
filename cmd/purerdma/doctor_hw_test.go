//go:build hw && linux

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/cmd/purerdma/internal/doctor"
	"github.com/purerdma/purerdma/lab"
)

// asUser makes this test binary the command, without the rights of root. TestDoctorAsUser starts it.
const asUser = "PURERDMA_TEST_DOCTOR_AS_USER"

func TestDoctorAsUser(t *testing.T) {
	if os.Getenv(asUser) == "" {
		t.Skip("is started by TestDoctorFindsPlantedFaults")
	}
	limit := unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setuid(65534); err != nil {
		t.Fatal(err)
	}
	(&tool{}).command().Main([]string{"doctor", "--json"}, os.Stdout, os.Stderr)
	os.Exit(0) // so that the document is all there is
}

// otherSysfs plants what no guest has over what it has: other file systems on parts of sysfs. A GPU of NVIDIA, a bridge with ACS on, an
// IOMMU, and no module.
const (
	otherSysfs = "mount -t tmpfs none /sys/module && mount -t tmpfs none /sys/class && mkdir -p /sys/class/iommu/dmar0 && " +
		"mount -t tmpfs none /sys/bus/pci/devices && cd /sys/bus/pci/devices && mkdir 0000:98:00.0 0000:99:00.0 && " +
		"echo 0x030200 > 0000:99:00.0/class && echo 0x10de > 0000:99:00.0/vendor && " +
		"echo 0x060400 > 0000:98:00.0/class && (head -c 256 /dev/zero; printf '\\015\\0\\1\\0\\0\\0\\014\\0'; head -c 248 /dev/zero) > 0000:98:00.0/config"
	ownSysfs = "umount /sys/bus/pci/devices; umount /sys/class; umount /sys/module"
)

// Each fault that the lab can have is planted, found, and mended. It cannot have those of adapters: RoCE v1 alone, relaxed ordering, PFC, ECN.
func TestDoctorFindsPlantedFaults(t *testing.T) {
	if !lab.Inside() {
		t.Skip("breaks the machine, so it runs only in the lab's guest (lab/vm)")
	}
	must := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v %s", name, args, err, out)
		}
	}
	sh := func(script string) { t.Helper(); must("sh", "-c", script) }
	examine := func() []doctor.Finding {
		t.Helper()
		_, out, _ := run(t, "doctor", "--json")
		return findingsOf(t, out)
	}
	before := examine()
	for _, f := range before {
		if f.Level == doctor.Problem {
			t.Errorf("the lab as it is: %+v", f)
		}
	}
	for _, c := range []struct {
		name, plant, mend string
		check             string
		level             doctor.Level
		on, text          string
	}{
		{"missing node", "mv /dev/infiniband/uverbs0 /dev/infiniband/away", "mv /dev/infiniband/away /dev/infiniband/uverbs0",
			"nodes", doctor.Problem, "/dev/infiniband/uverbs0", "missing"},
		{"port down", "ip link set v0 down", "ip link set v0 up", "ports", doctor.Problem, "rxe0/1", "DOWN"},
		{"no routable address", "ip -6 address del fd00:10:9::1/64 dev v0; ip address del 10.9.0.1/24 dev v0",
			"ip address add 10.9.0.1/24 dev v0; ip -6 address add fd00:10:9::1/64 dev v0 nodad", "GIDs", doctor.Problem, "rxe0/1", "link-local"},
		{"several addresses", "ip address add 10.77.0.1/24 dev v0; ip address add 10.78.0.1/24 dev v0",
			"ip address del 10.77.0.1/24 dev v0; ip address del 10.78.0.1/24 dev v0", "GIDs", doctor.Hint, "rxe0/1", "addresses are on net device v0"},
		{"frames too small", "ip link set v0 mtu 300", "ip link set v0 mtu 1500", "MTU", doctor.Problem, "rxe0/1", "holds no RoCE packet"},
		{"exclusive namespaces", "rdma system set netns exclusive", "rdma system set netns shared", "namespaces", doctor.Hint, "", "one network namespace"},
		{"small /dev/shm", "mkdir -p /dev/shm; mount -t tmpfs -o size=64m tmpfs /dev/shm", "umount /dev/shm", "shared memory", doctor.Hint, "/dev/shm", "64 MiB"},
		{"packets smaller than frames", "mount -t tmpfs none /sys/class/net/v0 && echo 4200 > /sys/class/net/v0/mtu", "umount /sys/class/net/v0",
			"MTU", doctor.Hint, "rxe0/1", "would hold 4096"},
		{"no device", "rdma link del rxe0; rdma link del rxe1", "rdma link add rxe0 type rxe netdev v0; rdma link add rxe1 type rxe netdev v1",
			"devices", doctor.Problem, "", "shows no RDMA device"},
		{"no huge pages", "sysctl -q -w vm.nr_hugepages=0", "true", "huge pages", doctor.Hint, "", "none is set aside"},
	} {
		sh(c.plant)
		if all := examine(); !has(all, doctor.Finding{Check: c.check, Level: c.level, On: c.on, Text: c.text}) {
			t.Errorf("%s: not found in %+v", c.name, all)
		}
		sh(c.mend)
	}

	sh(otherSysfs)
	all := examine()
	sh(ownSysfs)
	for _, want := range []doctor.Finding{
		{Check: "modules", Level: doctor.Problem, On: "ib_uverbs", Text: "not loaded"},
		{Check: "GPUDirect", Level: doctor.Problem, Text: "staged"},
		{Check: "GPU sharing", Level: doctor.Hint, Text: "take turns"},
		{Check: "PCI", Level: doctor.Hint, On: "0000:98:00.0", Text: "up to the processor"},
		{Check: "PCI", Level: doctor.Hint, On: "IOMMU", Text: "translates"},
	} {
		if !has(all, want) {
			t.Errorf("%+v is not in %+v", want, all)
		}
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	must("chmod", "600", "/dev/infiniband/uverbs1")
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestDoctorAsUser$")
	cmd.Dir, cmd.Env = filepath.Dir(self), append(os.Environ(), asUser+"=1")
	out, err := cmd.Output()
	must("chmod", "666", "/dev/infiniband/uverbs1")
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	right, limit := false, false
	for _, f := range findingsOf(t, string(out)) {
		right = right || f.Check == "nodes" && f.Level == doctor.Problem && strings.Contains(f.Text, "permission denied")
		limit = limit || f.Check == "memlock" && f.Level == doctor.Problem && strings.Contains(f.Text, "64 KiB")
	}
	if !right || !limit {
		t.Errorf("without rights: node %v, locked memory %v in %s", right, limit, out)
	}
}

// has reports whether a finding is there, with what to do; the text of want is a part of its text.
func has(all []doctor.Finding, want doctor.Finding) bool {
	return slices.ContainsFunc(all, func(f doctor.Finding) bool {
		return f.Check == want.Check && f.Level == want.Level && f.On == want.On && strings.Contains(f.Text, want.Text) && f.Remedy != ""
	})
}

func findingsOf(t *testing.T, doc string) []doctor.Finding {
	t.Helper()
	var d struct{ Findings []doctor.Finding }
	if err := json.Unmarshal([]byte(doc), &d); err != nil || len(d.Findings) == 0 {
		t.Fatalf("%v in %s", err, doc)
	}
	return d.Findings
}
