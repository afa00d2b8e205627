package transport

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

func TestHash(t *testing.T) {
	// h = 5381, then h·33 ^ c: worked out for "a" and "ab".
	for s, want := range map[string]uint64{"": 5381, "a": 5381*33 ^ 'a', "ab": (5381*33^'a')*33 ^ 'b'} {
		if got := hash(s); got != want {
			t.Errorf("%q: %d, want %d", s, got, want)
		}
	}
}

func TestIdentify(t *testing.T) {
	root := fstest.MapFS{
		"proc/sys/kernel/random/boot_id": {Data: []byte("12345678-9abc-def0-1234-56789abcdef0\n")},
		"proc/self/ns/pid":               {Data: []byte("pid:[4026531836]"), Mode: fs.ModeSymlink},
		"proc/self/ns/net":               {Data: []byte("net:[4026531840]"), Mode: fs.ModeSymlink},
	}
	w := World{Root: root, Hostname: func() (string, error) { return "node1", nil }, PID: func() int { return 17 }, UID: func() int { return 1000 }}
	p, err := Identify(w, "")
	if err != nil || p.HostHash != hash("node112345678-9abc-def0-1234-56789abcdef0") || p.PIDHash != hash("17pid:[4026531836]") ||
		p.NetNS != 4026531840 || p.UID != 1000 || p.BootID[0] != 0x12 || p.BootID[15] != 0xf0 {
		t.Errorf("%+v, %v", p, err)
	}
	q, err := Identify(w, "mine")
	if err != nil || q.HostHash != hash("mine") || q.BootID != p.BootID {
		t.Errorf("%+v, %v", q, err)
	}
	if here, err := Identify(World{}, ""); err != nil || here.HostHash == 0 || here.PIDHash == 0 || here.SameHost(&p) {
		t.Errorf("%+v, %v", here, err)
	}
}

func TestVariables(t *testing.T) {
	vars := map[string]string{"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "PHB", "NCCL_SHM_DISABLE": "0", "NCCL_NET_DISABLE_INTRA": "1",
		"NCCL_HOSTID": "h", "NCCL_CONNECT_ROUND_MAX_PEERS": "2", "NCCL_BUFFSIZE": "1048576", "NCCL_LL_BUFFSIZE": "1", "NCCL_LL128_BUFFSIZE": "2050"}
	v, err := VariablesFromEnv(func(n string) string { return vars[n] })
	if err != nil || !v.P2PDisable || v.P2PLevel == nil || v.SHMDisable || !v.NetDisableIntra || v.HostID != "h" || v.RoundPeers != 2 ||
		v.Buffers != [3]int{128, 2048, 1 << 20} {
		t.Errorf("%+v, %v", v, err)
	}
	for name, bad := range map[string]string{"NCCL_P2P_DISABLE": "yes", "NCCL_P2P_LEVEL": "FAR", "NCCL_CONNECT_ROUND_MAX_PEERS": "0", "NCCL_BUFFSIZE": "-1"} {
		_, err := VariablesFromEnv(func(n string) string {
			if n == name {
				return bad
			}
			return ""
		})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, bad, err)
		}
	}
}
