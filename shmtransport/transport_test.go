//go:build linux

package shmtransport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/purerdma/purerdma/transport/driver"
)

// ranks are two ranks of one host, each with a transport of its own.
func ranks(t *testing.T, c Config) (transports [2]*Transport, infos [2]driver.PeerInfo) {
	t.Helper()
	for i := range transports {
		if c.Addr != "" {
			c.Addr = filepath.Join(filepath.Dir(c.Addr), fmt.Sprint("rank", i))
		}
		transports[i] = New(c)
		infos[i] = driver.PeerInfo{Version: driver.ProtocolVersion, Rank: i, HostHash: 1, PIDHash: uint64(i), ShmDev: 9, BootID: [16]byte{1}, NetNS: 2,
			UID: uint32(os.Getuid())}
		if err := transports[i].Describe(&infos[i]); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(transports[i].Close(), transports[i].Close()); err != nil {
				t.Error(err)
			}
		})
	}
	return transports, infos
}

// setUp makes both ends of one direction, from rank 0 to rank 1.
func setUp(t *testing.T, transports [2]*Transport, infos [2]driver.PeerInfo, buffers [driver.Protocols]int) (ends [2]*Connector, blobs [2]driver.Blob) {
	t.Helper()
	for i, tr := range transports {
		c, err := tr.Setup(driver.Request{Send: i == 0, Self: &infos[i], Peer: &infos[1-i], Channel: 3, Buffers: buffers}, &blobs[i])
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*Connector)
		t.Cleanup(func() {
			if err := errors.Join(c.Close(), c.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	return ends, blobs
}

// join calls Connect in turn until both are done.
func join(t *testing.T, ends [2]*Connector, blobs [2]driver.Blob) {
	t.Helper()
	var done [2]bool
	for end := time.Now().Add(10 * time.Second); !done[0] || !done[1]; runtime.Gosched() {
		for i, c := range ends {
			var err error
			if done[i], err = c.Connect(&blobs[1-i]); err != nil {
				t.Fatal(err)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("not connected: %v", done)
		}
	}
}

func TestTransport(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		change func(p *driver.PeerInfo)
		way    way
	}{
		"memfd":                        {Config{}, func(*driver.PeerInfo) {}, bySocket},
		"memfd, socket in a directory": {Config{Addr: filepath.Join(t.TempDir(), "x")}, func(p *driver.PeerInfo) { p.NetNS = uint64(p.Rank) }, bySocket},
		"file":                         {Config{Dir: tmpfs(t)}, func(p *driver.PeerInfo) { p.NetNS = uint64(p.Rank) }, byFile},
		"memfd, GPUs":                  {Config{}, func(p *driver.PeerInfo) { p.ComputeCap = 90 }, bySocket},
		"file, one GPU":                {Config{Dir: tmpfs(t)}, func(p *driver.PeerInfo) { p.Socket = ""; p.ComputeCap = uint32(90 * p.Rank) }, byFile},
	} {
		t.Run(name, func(t *testing.T) {
			transports, infos := ranks(t, c.config)
			gpu := false
			for i := range infos {
				c.change(&infos[i])
				gpu = gpu || infos[i].HasGPU()
			}
			for i, tr := range transports {
				if v := tr.CanConnect(&infos[i], &infos[1-i]); !v.OK {
					t.Fatalf("rank %d: %s", i, v.Reason)
				}
			}
			buffers := [driver.Protocols]int{driver.LL: 64 << 10, driver.Simple: 1 << 20}
			ends, blobs := setUp(t, transports, infos, buffers)
			if ends[0].mine.way != c.way {
				t.Errorf("memory by %v", ends[0].mine.way)
			}
			join(t, ends, blobs)
			shared(t, ends[0].Conn(), ends[1].Conn(), buffers)
			if (ends[0].Sender() == nil) != gpu || (ends[1].Receiver() == nil) != gpu || ends[0].Receiver() != nil || ends[1].Sender() != nil {
				t.Error("rings where there are GPUs, or none where there is none, or in the wrong direction")
			}
			if s, r := ends[0].Sender(), ends[1].Receiver(); s != nil {
				m, buf := patterned(100_000, 1), make([]byte, 100_000)
				if err := s.Send(t.Context(), m); err != nil {
					t.Fatal(err)
				}
				if n, err := r.Recv(t.Context(), buf); err != nil || !bytes.Equal(buf[:n], m) {
					t.Errorf("%d bytes, %v", n, err)
				}
			}
			if c.config.Dir != "" {
				if left := names(t, c.config.Dir); len(left) != 0 {
					t.Errorf("left: %v", left)
				}
			}
			for _, e := range ends {
				if done, err := e.Connect(nil); !done || err != nil || e.Proxy() != nil || e.Err() != nil {
					t.Errorf("once connected: %v, %v, %v", done, err, e.Err())
				}
			}
			if err := ends[0].Close(); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(5 * time.Second); ends[1].Err() == nil && time.Now().Before(end); runtime.Gosched() {
			}
			if err := ends[1].Err(); err != io.EOF {
				t.Errorf("after the peer's Close: %v", err)
			}
		})
	}
}

// shared sees that both ends have the same memory, each part for itself.
func shared(t *testing.T, a, b *driver.Conn, buffers [driver.Protocols]int) {
	t.Helper()
	if len(a.SendMem.Bytes()) != 4096 || len(a.RecvMem.Bytes()) != 4096 {
		t.Errorf("SendMem of %d bytes, RecvMem of %d", len(a.SendMem.Bytes()), len(a.RecvMem.Bytes()))
	}
	parts := map[string][2][]byte{"SendMem": {a.SendMem.Bytes(), b.SendMem.Bytes()}, "RecvMem": {a.RecvMem.Bytes(), b.RecvMem.Bytes()}}
	for p, n := range buffers {
		if (a.Buffers[p] == nil) != (n == 0) || (b.Buffers[p] == nil) != (n == 0) {
			t.Fatalf("buffer %v, of %d bytes", driver.Protocol(p), n)
		}
		if n > 0 {
			parts[driver.Protocol(p).String()] = [2][]byte{a.Buffers[p].Bytes(), b.Buffers[p].Bytes()}
		}
	}
	value := byte(0)
	for name, part := range parts {
		if len(part[0]) != len(part[1]) || bytes.ContainsFunc(part[1], func(r rune) bool { return r != 0 }) {
			t.Errorf("%s is not new, or %d bytes here and %d there", name, len(part[0]), len(part[1]))
		}
		value++
		for i := range part[0] {
			part[0][i] = value
		}
	}
	for name, part := range parts {
		if !bytes.Equal(part[0], part[1]) {
			t.Errorf("%s is not the same at both ends", name)
		}
	}
}

func TestCanConnect(t *testing.T) {
	transports, infos := ranks(t, Config{})
	for want, change := range map[string]func(p *driver.PeerInfo){
		"different hosts":                      func(p *driver.PeerInfo) { p.HostHash++ },
		"boot ids differ":                      func(p *driver.PeerInfo) { p.BootID[3]++ },
		"different users":                      func(p *driver.PeerInfo) { p.UID++ },
		"without a Unix socket; no /dev/shm":   func(p *driver.PeerInfo) { p.Socket, p.ShmDev = "", 0 },
		"network namespaces; no /dev/shm":      func(p *driver.PeerInfo) { p.NetNS++; p.ShmDev++ },
		"refused; no /dev/shm":                 func(p *driver.PeerInfo) { p.Socket, p.ShmDev = "@purerdma-shm-nobody", 1 },
		"one socket is abstract; no /dev/shm.": func(p *driver.PeerInfo) { p.Socket, p.ShmDev = "/nowhere", 1 },
	} {
		peer := infos[1]
		change(&peer)
		v := transports[0].CanConnect(&infos[0], &peer)
		if key := strings.TrimSuffix(strings.Replace(want, "abstract;", "abstract, the other a path;", 1), "."); v.OK || !strings.Contains(v.Reason, key) {
			t.Errorf("%+v, want %q", v, key)
		}
		if _, err := transports[0].Setup(driver.Request{Send: true, Self: &infos[0], Peer: &peer}, new(driver.Blob)); err == nil {
			t.Errorf("%s: Setup succeeds", want)
		}
	}
	peer := infos[1]
	peer.NetNS++
	if v := transports[0].CanConnect(&infos[0], &peer); !v.OK || !strings.Contains(v.Reason, "file") {
		t.Errorf("by file: %+v", v)
	}
	if name := transports[0].Name(); name != "SHM" {
		t.Error(name)
	}
}

// What the other rank says is checked, field by field.
func TestBlobs(t *testing.T) {
	transports, infos := ranks(t, Config{})
	for want, damage := range map[string]func(b *driver.Blob){
		"no blob of this version": func(b *driver.Blob) { b[0]++ },
		"both ranks need":         func(b *driver.Blob) { b[16] = 2 },
		"both ends want":          func(b *driver.Blob) { b[20] ^= 1 },
		"memory by file":          func(b *driver.Blob) { b[24] = 2 },
		"memory by way 7":         func(b *driver.Blob) { b[24] = 7 },
		"has a GPU":               func(b *driver.Blob) { b[28] = 0 },
		"buffer SIMPLE":           func(b *driver.Blob) { b[66] = 1 },
		"another token":           func(b *driver.Blob) { b[40]++ },
	} {
		ends, blobs := setUp(t, transports, infos, [driver.Protocols]int{})
		damage(&blobs[1])
		var err error
		for end := time.Now().Add(5 * time.Second); err == nil && time.Now().Before(end); runtime.Gosched() {
			_, err = ends[0].Connect(&blobs[1])
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "rank 1") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := transports[0].Setup(driver.Request{Self: &infos[0], Peer: &infos[1], Buffers: [driver.Protocols]int{1 << 40}}, new(driver.Blob)); err == nil {
		t.Error("a buffer of 1 TiB is accepted")
	}
}

// Ends are closed in the middle of connecting, in any state.
func TestCloseWhileConnecting(t *testing.T) {
	dir := tmpfs(t)
	for i := range 40 {
		transports, infos := ranks(t, Config{Dir: dir})
		if i%2 == 1 {
			infos[0].NetNS++
		}
		ends, blobs := setUp(t, transports, infos, [driver.Protocols]int{})
		for range i / 2 {
			for e := range ends {
				if _, err := ends[e].Connect(&blobs[1-e]); err != nil {
					t.Fatal(err)
				}
			}
			runtime.Gosched()
		}
		first := i / 2 % 2
		if err := errors.Join(ends[first].Close(), transports[first].Close(), ends[1-first].Close()); err != nil {
			t.Error(err)
		}
	}
	if left := names(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
