//go:build hw && linux

package wire_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
	"github.com/purerdma/purerdma/lab"
	"github.com/purerdma/purerdma/mr"
	"github.com/purerdma/purerdma/qp"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write what was captured to testdata")

// TestHWKernelPackets looks at each packet between two Soft-RoCE devices while
// the C programs of rdma-core and perftest, and a few requests of our own for
// what they do not send, run over them: all must parse, and their ICRC must be
// right with the Identification that is in the IP header. With -update two
// packets of each opcode and IP version become the golden ones.
func TestHWKernelPackets(t *testing.T) {
	if !lab.Inside() {
		t.Skip("captures the network of the machine, so it runs only in the lab's guest (lab/vm)")
	}
	sniff := capture(t, lab.End0)
	for gid := range 2 {
		g := fmt.Sprint(gid)
		for _, tool := range []string{"ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong"} {
			both(t, tool, "-g", g, "-n", "4", "-s", "700", "-m", "256")
		}
		both(t, "ibv_ud_pingpong", "-g", g, "-n", "4", "-s", "101")
		for _, size := range []string{"1", "701"} {
			for _, kind := range []string{"RC", "UC"} {
				both(t, "ib_write_lat", "-x", g, "-n", "5", "-s", size, "-m", "256", "-F", "-c", kind)
				both(t, "ib_send_lat", "-x", g, "-n", "5", "-s", size, "-m", "256", "-F", "-c", kind)
			}
			both(t, "ib_read_lat", "-x", g, "-n", "5", "-s", size, "-m", "256", "-F")
		}
		for _, kind := range []string{"CMP_AND_SWAP", "FETCH_AND_ADD"} {
			both(t, "ib_atomic_lat", "-x", g, "-n", "5", "-F", "-A", kind)
		}
		immediates(t, gid)
	}
	packets := sniff()
	seen, bad := map[string]int{}, 0
	var golden []string
	for _, p := range packets {
		src, dst, id, pkt, err := unwrap(p)
		if err != nil {
			continue
		}
		view, err := wire.Parse(pkt)
		if err != nil {
			t.Errorf("%x: %v", p, err)
			continue
		}
		path := wire.NewPath(src, dst)
		if got, ok := path.Check(pkt, id+1); !path.Verify(pkt, id) || !ok || src.Addr().Is4() && got != id {
			if bad++; bad < 5 {
				t.Errorf("%v: ICRC wrong, ID %#x, recovered %#x %v: %x", view.Opcode(), id, got, ok, p)
			}
		}
		key := view.Opcode().String()
		if src.Addr().Is6() {
			key += " v6"
		}
		if seen[key]++; seen[key] <= 2 {
			golden = append(golden, fmt.Sprintf("%s\n%x\n", view.Opcode(), p))
		}
	}
	t.Logf("%d packets, %d bad: %v", len(packets), bad, seen)
	if len(seen) < 40 {
		t.Errorf("only %d kinds of packets were seen", len(seen))
	}
	if *update {
		slices.Sort(golden)
		release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
		text := "# IP packets of rdma_rxe, Linux " + strings.TrimSpace(string(release)) + ", captured between two of its devices.\n" + strings.Join(golden, "")
		if err := os.WriteFile("testdata/rxe.txt", []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// capture collects the IP packets of a network device until the function it
// returns is called.
func capture(t *testing.T, device string) func() [][]byte {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		t.Fatal(err)
	}
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20))
	if err != nil {
		t.Fatal(err)
	}
	var packets [][]byte
	var group sync.WaitGroup
	stop := make(chan struct{})
	group.Go(func() {
		defer unix.Close(fd)
		buf := make([]byte, 65536)
		for {
			n, _, err := unix.Recvfrom(fd, buf, 0)
			if err == nil {
				packets = append(packets, slices.Clone(buf[:n]))
				continue
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	return func() [][]byte {
		close(stop)
		group.Wait()
		return packets
	}
}

var listening = regexp.MustCompile(`:4959 0+:0000 0A `)

// both runs a program as server on rxe0 and as client on rxe1.
func both(t *testing.T, tool string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Logf("%s is not installed", tool)
		return
	}
	start := func(dev string, more ...string) (*exec.Cmd, *strings.Builder) {
		out := new(strings.Builder)
		c := exec.Command("timeout", slices.Concat([]string{"60", tool, "-d", dev, "-p", "18777"}, args, more)...)
		c.Stdout, c.Stderr = out, out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c, out
	}
	server, serverOut := start("rxe0")
	for range 400 { // until it listens: port 18777 is 4959 in hexadecimal, listening 0A
		tcp, _ := os.ReadFile("/proc/net/tcp")
		tcp6, _ := os.ReadFile("/proc/net/tcp6")
		if listening.Match(append(tcp, tcp6...)) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	client, clientOut := start("rxe1", "127.0.0.1")
	if err := errors.Join(client.Wait(), server.Wait()); err != nil {
		t.Errorf("%s %v: %v\n%s%s", tool, args, err, serverOut, clientOut)
	}
}

// immediates sends with immediate data, as none of the programs does.
func immediates(t *testing.T, gid int) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	type end struct {
		qp  *qp.QP
		cq  *ibverbs.CQ
		mem *ibverbs.MR
	}
	var ends [2]end
	for i := range ends {
		dev, err := ibverbs.Open(fmt.Sprintf("rxe%d", i))
		must(err)
		defer dev.Close()
		pd, err := dev.AllocPD()
		must(err)
		cq, err := dev.CreateCQ(64)
		must(err)
		buf, err := mr.Alloc(4096)
		must(err)
		defer buf.Close()
		mem, err := pd.RegMR(buf, ibverbs.LocalWrite|ibverbs.RemoteWrite)
		must(err)
		q, err := qp.New(pd, cq, cq, qp.WithGIDIndex(gid), qp.WithMTU(ibverbs.MTU256), qp.WithAccess(ibverbs.LocalWrite|ibverbs.RemoteWrite))
		must(err)
		ends[i] = end{q, cq, mem}
	}
	a, b := ends[0], ends[1]
	must(a.qp.Connect(b.qp.Info()))
	must(b.qp.Connect(a.qp.Info()))
	for _, op := range []ibverbs.Opcode{ibverbs.OpSendWithImm, ibverbs.OpWriteWithImm} {
		for _, n := range []int{5, 300} {
			_, err := b.qp.PostRecv(ibverbs.RecvWR{SGL: []ibverbs.SGE{b.mem.SGE(0, 1024)}})
			must(err)
			_, err = a.qp.PostSend(ibverbs.SendWR{
				Op: op, Imm: 0x01020304, Flags: ibverbs.Signaled | ibverbs.Solicited,
				SGL: []ibverbs.SGE{a.mem.SGE(0, n)}, Remote: b.mem.Remote(0),
			})
			must(err)
			wc := make([]ibverbs.WC, 1)
			_, err = a.cq.Wait(t.Context(), wc)
			must(err)
			must(a.cq.Err(&wc[0]))
			_, err = b.cq.Wait(t.Context(), wc)
			must(err)
		}
	}
}
