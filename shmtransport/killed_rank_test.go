//go:build linux

package shmtransport

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport"
	"github.com/purerdma/purerdma/transport/driver"
)

var kills = flag.Int("kills", 24, "how many ranks TestKilledRank kills; 84 are one at each stage for both ways to share memory")

// stage is a kind of call at which a rank can die: always before the call, so that after one is before the next.
type stage string

const (
	inJob     stage = "job"      // all-gathers, barriers and messages of the bootstrap
	inSelect  stage = "select"   // CanConnect
	inSetup   stage = "setup"    // Setup
	inConnect stage = "connect"  // Connect of a connector
	inData    stage = "messages" // messages over the connections
)

// death is where a rank dies: before the nth call of a kind, or, if it does not come to that, in the middle of data.
type death struct {
	at stage
	n  int
}

var deaths = func() (all []death) {
	for _, of := range []death{{inJob, 16}, {inSelect, 4}, {inSetup, 6}, {inConnect, 10}} {
		for n := 1; n <= of.n; n++ {
			all = append(all, death{of.at, n})
		}
	}
	for _, n := range []int{1, 2, 10, 100, 500, 2000} {
		all = append(all, death{inData, n})
	}
	return all
}()

// mortal counts the calls of a rank and kills its process, without a word, where it is due.
type mortal struct {
	death

	mu    sync.Mutex
	calls map[stage]int
}

func (m *mortal) step(at stage) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[at]++
	if m.at == at && m.calls[at] == m.n || at == inData && m.calls[at] == 3000 {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {} // until it has come
	}
}

type mortalJob struct {
	bootstrap.Job
	m *mortal
}

func (j mortalJob) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	j.m.step(inJob)
	return j.Job.AllGather(ctx, mine)
}

func (j mortalJob) Barrier(ctx context.Context) error {
	j.m.step(inJob)
	return j.Job.Barrier(ctx)
}

func (j mortalJob) Send(ctx context.Context, to int, tag uint32, b []byte) error {
	j.m.step(inJob)
	return j.Job.Send(ctx, to, tag, b)
}

func (j mortalJob) Recv(ctx context.Context, from int, tag uint32) ([]byte, error) {
	j.m.step(inJob)
	return j.Job.Recv(ctx, from, tag)
}

// mortalTransport is SHM by one of its two ways.
type mortalTransport struct {
	*Transport
	way    way
	m      *mortal
	buried <-chan struct{} // closed when the killed process has ended; nil in that process
}

// Close waits until the kernel has let go of the dead process's locks: its sockets may end a moment earlier.
func (t mortalTransport) Close() error {
	if t.buried != nil {
		<-t.buried
	}
	return t.Transport.Close()
}

func (t mortalTransport) Describe(self *driver.PeerInfo) error {
	err := t.Transport.Describe(self)
	if t.way == byFile {
		self.Socket = ""
	}
	return err
}

func (t mortalTransport) CanConnect(self, peer *driver.PeerInfo) driver.Verdict {
	t.m.step(inSelect)
	return t.Transport.CanConnect(self, peer)
}

func (t mortalTransport) Setup(r driver.Request, out *driver.Blob) (driver.Connector, error) {
	t.m.step(inSetup)
	c, err := t.Transport.Setup(r, out)
	if err != nil {
		return nil, err
	}
	return mortalConnector{c.(*Connector), t.m}, nil
}

type mortalConnector struct {
	*Connector
	m *mortal
}

func (c mortalConnector) Connect(in *driver.Blob) (bool, error) {
	c.m.step(inConnect)
	return c.Connector.Connect(in)
}

// member is one rank: it joins, connects to all others and sends and receives until the job ends, and says why it did.
func member(ctx context.Context, id bootstrap.ID, rank, size int, w way, dir string, m *mortal, buried <-chan struct{}) (err error) {
	here := socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}
	joined, err := bootstrap.Join(ctx, bootstrap.Config{ID: id, Rank: rank, Size: size, Net: here})
	if err != nil {
		return err
	}
	job := mortalJob{joined, m}
	defer func() { err = errors.Join(err, job.Close()) }()
	shm := mortalTransport{New(Config{Dir: dir}), w, m, buried}
	defer func() { err = errors.Join(err, shm.Close()) }()
	comm, err := transport.New(ctx, transport.Config{Job: job, Transports: []transport.Transport{shm}, Log: slog.New(slog.DiscardHandler),
		Variables: &transport.Variables{Buffers: [driver.Protocols]int{driver.Simple: 64 << 10}}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	if err := comm.Connect(ctx, transport.Mesh(rank, size, 1)); err != nil {
		return err
	}
	return converse(ctx, job, comm, m)
}

// converse moves messages both ways with every rank until the job ends.
func converse(ctx context.Context, job mortalJob, comm *transport.Communicator, m *mortal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	errs := make([]error, job.Size())
	for peer := range job.Size() {
		if peer == job.Rank() {
			continue
		}
		ends := func(send bool) *Connector {
			return comm.Connector(transport.End{Peer: peer, ConnIndex: 1, Send: send}).(mortalConnector).Connector
		}
		s, r := ends(true).Sender(), ends(false).Receiver()
		all.Go(func() {
			for i := 0; ; i++ {
				m.step(inData)
				if err := s.Send(ctx, make([]byte, i*797%70_000)); err != nil {
					return
				}
			}
		})
		all.Go(func() {
			for b := make([]byte, 70_000); errs[peer] == nil; {
				_, errs[peer] = r.Recv(ctx, b)
			}
		})
	}
	select {
	case <-job.Done():
	case <-ctx.Done():
	}
	died := new(bootstrap.RankError)
	if errors.As(job.Err(), &died) { // who still waits for it is told by the memory, too
		for end := time.Now().Add(time.Second); comm.Connector(transport.End{Peer: died.Rank, ConnIndex: 1}).(mortalConnector).Err() == nil &&
			time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	cancel()
	all.Wait()
	if err := errs[max(0, died.Rank)]; died.Err != nil && !errors.Is(err, ErrPeerGone) {
		return fmt.Errorf("received from rank %d: %w", died.Rank, err)
	}
	return job.Err()
}

func init() {
	children["rank"] = func() error {
		var id, at, dir string
		var rank, size, n, w int
		if _, err := fmt.Sscan(os.Getenv("PURERDMA_SHM_ADDR"), &id, &rank, &size, &at, &n, &w, &dir); err != nil {
			return err
		}
		job, err := bootstrap.ParseID(id)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		m := &mortal{death: death{stage(at), n}, calls: map[stage]int{}}
		return errors.Join(member(ctx, job, rank, size, way(w), dir, m, nil), errors.New("it is still alive"))
	}
}

// A rank, a process, is killed at each stage of set-up and in the middle of data, with memory passed over a socket and with files. Every
// other rank gets an error that names it, and nothing is left: no file, no descriptor, no goroutine.
//
//	go test ./shmtransport -run TestKilledRank -kills 200
func TestKilledRank(t *testing.T) {
	runs := *kills
	if testing.Short() {
		runs = min(runs, 8)
	}
	first := rand.IntN(len(deaths))
	t.Logf("begins with %v", deaths[first])
	dir := tmpfs(t)
	before, maps := openFiles(t), mappings(t)
	var longest time.Duration
	for i := range runs {
		d := deaths[(first+i/2*5)%len(deaths)] // 5 and the number of deaths have no divisor in common
		w, size := bySocket, 4
		if i%2 == 1 {
			w, size = byFile, 3 // room for all connections in 64 MiB
		}
		longest = max(longest, killOne(t, dir, d, w, i/2%size, size))
		if left := names(t, dir); len(left) != 0 {
			t.Errorf("run %d, %v, %v: left: %v", i, d, w, left)
		}
		if t.Failed() {
			break
		}
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	if after := mappings(t); after > maps {
		t.Errorf("%d mappings before, %d after", maps, after)
	}
	t.Logf("%d killed; the others had ended %v after a death at the latest", runs, longest)
}

// killOne lets one job run until a rank dies, and tells how long after it the others had ended.
func killOne(t *testing.T, dir string, d death, w way, dead, size int) time.Duration {
	t.Helper()
	root, err := bootstrap.NewRoot(t.Context(), bootstrap.RootConfig{Net: socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"=rank", fmt.Sprintf("PURERDMA_SHM_ADDR=%v %d %d %s %d %d %s", root.ID(), dead, size, d.at, d.n, w, dir))
	said := new(strings.Builder)
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	errs, over := make([]error, size), make([]time.Time, size)
	buried := make(chan struct{})
	var all sync.WaitGroup
	for rank := range size {
		if rank == dead {
			continue
		}
		all.Go(func() {
			errs[rank] = member(ctx, root.ID(), rank, size, w, dir, nil, buried)
			over[rank] = time.Now()
		})
	}
	err = cmd.Wait()
	died := time.Now()
	close(buried)
	all.Wait()
	if state := cmd.ProcessState.Sys().(interface{ Signaled() bool }); !state.Signaled() {
		t.Errorf("%v, %v: the rank was not killed: %v: %s", d, w, err, said)
	}
	name, longest := fmt.Sprintf("rank %d", dead), time.Duration(0)
	for rank, err := range errs {
		if rank == dead {
			continue
		}
		var e *bootstrap.RankError
		if err == nil || !strings.Contains(err.Error(), name) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) && !errors.As(err, &e) {
			t.Errorf("%v, %v: rank %d: %v, want %s named", d, w, rank, err, name)
		}
		longest = max(longest, over[rank].Sub(died))
	}
	return longest
}
