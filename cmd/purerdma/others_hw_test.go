//go:build hw && linux

package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/cmd/purerdma/internal/inventory"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/lab"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
)

// theirs runs a program of rdma-core or iproute2; without it the test is skipped, except in the lab.
func theirs(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if lab.Inside() {
			t.Fatal(err)
		}
		t.Skipf("needs %s: %v", name, err)
	}
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if err != nil && name == "rdma" && !lab.Inside() {
		t.Skipf("needs RDMA netlink, by which rdma is told: %v", err)
	}
	if err != nil {
		t.Fatalf("%s: %v %s", name, err, out)
	}
	return string(out)
}

// fields reads what ibv_devinfo -v prints: by device, and by path of sections, the value of each line. Lines deep to the right belong
// to the value before them.
func fields(text string) map[string]string {
	found := map[string]string{}
	device, port, last := "", "", ""
	split := regexp.MustCompile(`^(.*?):(\s+(.*))?$`)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		depth := len(line) - len(strings.TrimLeft(line, "\t"))
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if depth >= 5 {
			found[last] = strings.TrimSpace(found[last] + " " + line)
			continue
		}
		key, value := line, ""
		if m := split.FindStringSubmatch(line); m != nil {
			key, value = m[1], strings.TrimSpace(m[3])
		}
		switch {
		case key == "hca_id":
			device, port = value, ""
		case key == "port" && depth == 2:
			port = "port " + value + " "
		default:
			last = device + " " + port + key
			found[last] = value
		}
	}
	return found
}

// ofTheProvider is what only rdma-core's provider tells, from behind the kernel's answer: for devices without, nothing.
var ofTheProvider = regexp.MustCompile(`(tso_caps|max_tso|rx_hash_function|rx_hash_fields_mask|packet_pacing_caps|qp_rate_limit_m..|supported_qp)$`)

func TestAllThatDevinfoPrints(t *testing.T) {
	want := fields(theirs(t, "ibv_devinfo", "-v"))
	code, out, problems := run(t, "devices", "-v")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, problems)
	}
	got := fields(out)
	_, doc, _ := run(t, "devices", "--json")
	gids := gidsOf(t, doc)
	compared := 0
	for key, value := range want {
		switch {
		case ofTheProvider.MatchString(key):
			if strings.Trim(value, "0xkbps") != "" {
				t.Errorf("%s is %q, which is not shown", key, value)
			}
			continue
		case strings.Contains(key, "GID["):
			if !slices.Contains(gids, normal(key+" "+value)) {
				t.Errorf("%s %s is not in %q", key, value, gids)
			}
		default:
			ours, there := got[key]
			if !there || ours != value {
				t.Errorf("%s: ibv_devinfo %q, we %q (%v)", key, value, ours, there)
			}
		}
		compared++
	}
	t.Logf("%d fields compared", compared)
	if compared < 50 {
		t.Errorf("ibv_devinfo told %d fields alone", compared)
	}
}

// normal is a line of ibv_devinfo about a GID without its blanks.
func normal(line string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(line, "[", " ")), " ")
}

func inventoryOf(t *testing.T, doc string) []inventory.Device {
	t.Helper()
	var d struct{ Devices []inventory.Device }
	if err := json.Unmarshal([]byte(doc), &d); err != nil {
		t.Fatal(err)
	}
	return d.Devices
}

// gidsOf is the GIDs as ibv_devinfo writes them: in full but for RoCE v2, and with their type on Ethernet.
func gidsOf(t *testing.T, doc string) (lines []string) {
	for _, d := range inventoryOf(t, doc) {
		for _, p := range d.Ports {
			for _, g := range p.GIDs {
				gid := g.GID + ", " + g.Type
				if g.Type != ibverbs.GIDTypeRoCEv2.String() {
					gid = netip.MustParseAddr(g.GID).StringExpanded()
				}
				if g.Type == ibverbs.GIDTypeRoCEv1.String() {
					gid += ", " + g.Type
				}
				lines = append(lines, normal(fmt.Sprintf("%s port %d GID[ %d] %s", d.Name, p.Number, g.Index, gid)))
			}
		}
	}
	return lines
}

func TestAllThatRdmaLinkAndDevPrint(t *testing.T) {
	_, doc, _ := run(t, "devices", "--json")
	ours := map[string]map[string]any{}
	for _, d := range inventoryOf(t, doc) {
		for _, p := range d.Ports {
			link := map[string]any{"ifindex": d.Index, "ifname": d.Name, "port": p.Number, "state": p.State, "physical_state": p.PhysicalName}
			if p.NetDev != "" {
				link["netdev"], link["netdev_index"] = p.NetDev, p.NetDevIndex
			}
			if p.LinkLayer == "InfiniBand" {
				link["lid"], link["sm_lid"], link["lmc"] = p.LID, p.SMLID, p.LMC
			}
			ours[fmt.Sprintf("link %s/%d", d.Name, p.Number)] = link
		}
		dev := map[string]any{"ifindex": d.Index, "ifname": d.Name, "node_type": strings.ToLower(d.NodeType), "node_guid": d.NodeGUID,
			"sys_image_guid": d.SysGUID}
		if d.Attr != nil {
			dev["caps"] = capsOfRdma(d.Attr.CapFlags)
		}
		if fw := d.Firmware; fw != "" {
			dev["fw"] = fw
		}
		ours["dev "+d.Name] = dev
	}
	compared := 0
	for _, command := range []string{"link", "dev"} {
		var told []map[string]any
		if err := json.Unmarshal([]byte(theirs(t, "rdma", "-j", "-d", command, "show")), &told); err != nil {
			t.Fatal(err)
		}
		if len(told) == 0 {
			t.Skip("rdma tells of no device")
		}
		for _, one := range told {
			key := fmt.Sprintf("%s %v", command, one["ifname"])
			if command == "link" {
				key += fmt.Sprintf("/%v", one["port"])
			}
			for name, value := range one {
				// What rdma dev says of moderation is of the kernel's own CQs.
				if name == "adaptive-moderation" {
					continue
				}
				if got := fmt.Sprint(ours[key][name]); got != fmt.Sprint(value) {
					t.Errorf("%s, %s: rdma %v, we %v", key, name, value, got)
				}
				compared++
			}
		}
	}
	t.Logf("%d fields compared", compared)
}

// capsOfRdma is the flags by the words of rdma dev, which has one of its own.
func capsOfRdma(flags uint64) []string {
	names := deviceCaps(flags)
	for i, n := range names {
		if n == "UD_AV_PORT_ENFORCE" {
			names[i] = "UD_AV_PORT_ENFORCE_PORT_ENFORCE"
		}
	}
	return names
}

// Objects of this process and the kernel's, by kind and number, are those that rdma res knows, with all that it tells of them.
func TestAllThatRdmaResPrints(t *testing.T) {
	found, err := ibverbs.Devices()
	if err != nil {
		t.Fatal(err)
	}
	var device *ibverbs.Device
	for _, d := range found {
		if d.Info().Index >= 0 && device == nil {
			device = d
		}
	}
	if device == nil {
		t.Skip("no device of the kernel")
	}
	dev, err := device.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := qp.New(pd, cq, cq); err != nil {
		t.Fatal(err)
	}
	buf, err := mr.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	if _, err := pd.RegMR(buf, ibverbs.LocalWrite); err != nil {
		t.Fatal(err)
	}
	if dev.Probe(ibverbs.FeatureSRQ) == nil {
		if _, err := pd.CreateSRQ(ibverbs.SRQConfig{WR: 8, SGE: 1}); err != nil {
			t.Fatal(err)
		}
	}
	res, err := device.Resources()
	if err != nil {
		t.Fatal(err)
	}
	name := device.Info().Name
	var summary []map[string]any
	if err := json.Unmarshal([]byte(theirs(t, "rdma", "-j", "res", "show", name)), &summary); err != nil || len(summary) != 1 {
		t.Fatalf("%v: %v", summary, err)
	}
	for kind, n := range summary[0] {
		if kind != "ifindex" && kind != "ifname" && n != float64(res.Counts[ibverbs.ResourceKind(kind)]) {
			t.Errorf("%s: rdma counts %v, we %d", kind, n, res.Counts[ibverbs.ResourceKind(kind)])
		}
	}
	compared := 0
	for _, kind := range []ibverbs.ResourceKind{"pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"} {
		var told []map[string]any
		if err := json.Unmarshal([]byte(theirs(t, "rdma", "-j", "-d", "res", "show", string(kind))), &told); err != nil {
			t.Fatal(err)
		}
		told = slices.DeleteFunc(told, func(one map[string]any) bool { return one["ifname"] != name })
		var ours []map[string]any
		for _, r := range res.Objects {
			if r.Kind == kind {
				ours = append(ours, asRdma(&r))
			}
		}
		for _, one := range told {
			for _, name := range notTold[kind] {
				delete(one, name)
			}
			if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%v", one["pid"])); err == nil { // rdma names the thread
				one["pid"] = os.Getpid()
			}
			if !slices.ContainsFunc(ours, func(o map[string]any) bool { return covers(o, one) }) {
				t.Errorf("rdma res show %s: %v is not among %v", kind, one, ours)
			}
			compared += len(one)
		}
		if len(ours) != len(told) {
			t.Errorf("%s: rdma lists %d, we %d", kind, len(told), len(ours))
		}
	}
	t.Logf("%d fields compared, counts %v", compared, res.Counts)
	if compared < 20 {
		t.Errorf("rdma told %d fields alone", compared)
	}
}

// notTold is what rdma -d tells of objects beyond ours: keys, which are secret, and numbers of the moment.
var notTold = map[ibverbs.ResourceKind][]string{
	"pd":  {"ifindex", "ifname", "local_dma_lkey", "ctxn"},
	"cq":  {"ifindex", "ifname", "adaptive-moderation", "poll-ctx", "ctxn"},
	"qp":  {"ifindex", "ifname", "path-mig-state", "sq-psn", "rq-psn", "pdn"},
	"mr":  {"ifindex", "ifname", "rkey", "lkey", "pdn"},
	"ctx": {"ifindex", "ifname"},
	"srq": {"ifindex", "ifname", "type", "lqpn", "pdn", "cqn"},
}

// covers reports whether o has all that one has.
func covers(o, one map[string]any) bool {
	for name, v := range one {
		if fmt.Sprint(o[name]) != fmt.Sprint(v) {
			return false
		}
	}
	return true
}

// asRdma is an object by the words of rdma res.
func asRdma(r *ibverbs.Resource) map[string]any {
	m := map[string]any{"comm": r.Owner}
	if r.PID != 0 {
		m["pid"] = r.PID
	}
	number := map[ibverbs.ResourceKind]string{"pd": "pdn", "cq": "cqn", "qp": "lqpn", "mr": "mrn", "ctx": "ctxn", "srq": "srqn"}[r.Kind]
	m[number] = r.Number
	switch r.Kind {
	case ibverbs.ResourceQP:
		m["port"], m["type"], m["state"], m["rqpn"] = r.Port, r.Type, r.State.String(), r.RemoteQPN
	case ibverbs.ResourceCQ:
		m["cqe"], m["users"] = r.Depth, r.Users
	case ibverbs.ResourcePD:
		m["users"] = r.Users
	case ibverbs.ResourceMR:
		m["mrlen"] = r.Bytes
	}
	return m
}
