package transport

import (
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/purerdma/purerdma/transport/driver"
)

// World is where a rank learns what it is; the zero value is the machine.
type World struct {
	Root     fs.FS // the file tree; nil = the machine's
	Hostname func() (string, error)
	PID, UID func() int
}

func (w World) orDefaults() World {
	if w.Root == nil {
		w.Root = os.DirFS("/")
	}
	if w.Hostname == nil {
		w.Hostname = os.Hostname
	}
	if w.PID == nil {
		w.PID = os.Getpid
	}
	if w.UID == nil {
		w.UID = os.Getuid
	}
	return w
}

// Identify fills a PeerInfo with what the operating system says of this process. hostID is NCCL_HOSTID: if it is not empty, ranks with
// the same text are on one host and all others are not; else the host is its name and the boot id. What cannot be read is left 0,
// which forbids nothing that does not need it.
//
// Hashes are NCCL's string hash, without the hash of the communicator that NCCL adds.
func Identify(w World, hostID string) (PeerInfo, error) {
	w = w.orDefaults()
	p := PeerInfo{Version: driver.ProtocolVersion, UID: uint32(w.UID())}
	boot, _ := fs.ReadFile(w.Root, "proc/sys/kernel/random/boot_id")
	bootID := strings.TrimSpace(string(boot))
	if b, err := hex.DecodeString(strings.ReplaceAll(bootID, "-", "")); err == nil && len(b) == len(p.BootID) {
		p.BootID = [16]byte(b)
	}
	if hostID == "" {
		name, err := w.Hostname()
		if err != nil {
			return p, fmt.Errorf("transport: host name, and NCCL_HOSTID is not set: %w", err)
		}
		hostID = name + bootID
	}
	p.HostHash = hash(hostID)
	pidNS, _ := fs.ReadLink(w.Root, "proc/self/ns/pid")
	p.PIDHash = hash(strconv.Itoa(w.PID()) + pidNS)
	if info, err := fs.Stat(w.Root, "dev/shm"); err == nil {
		p.ShmDev = deviceOf(info)
	}
	if ns, err := fs.ReadLink(w.Root, "proc/self/ns/net"); err == nil { // "net:[4026531840]"
		p.NetNS, _ = strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(ns, "net:["), "]"), 10, 64)
	}
	return p, nil
}

// hash is NCCL's getHash.
func hash(s string) uint64 {
	h := uint64(5381)
	for i := range len(s) {
		h = h*33 ^ uint64(s[i])
	}
	return h
}
