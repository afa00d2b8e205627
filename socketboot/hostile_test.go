package socketboot

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A thousand silent, garbage and slow clients do not keep good peers out, and leave nothing behind: no goroutine, descriptor or
// memory, with the bound above their number and below.
func TestHostileClients(t *testing.T) {
	for name, bound := range map[string]int{"below the default bound": 0, "at the bound": 250} {
		t.Run(name, func(t *testing.T) { hostileClients(t, 1000, bound) })
	}
}

func hostileClients(t *testing.T, clients, bound int) {
	s := loopback(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))

	n := local
	n.MaxPending = bound
	// Shorter than the defaults, so that the slow ones meet them within the test.
	n.Deadlines = Deadlines{Hello: 2 * time.Second, Step: 2 * time.Second, Total: 4 * time.Second}
	var d drops
	n.Dropped = d.add
	l := serve(t, n, newOwners(t))
	conn, acc := pair(t, n, l) // all that is made once is made
	conn.Close()
	acc.Close()
	before := census(t)

	stop := make(chan struct{})
	var wg sync.WaitGroup
	h := l.Handle()
	conns := make([]net.Conn, clients)
	for i := range conns {
		c, err := net.Dial("tcp", h.Addr().String())
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		conns[i] = c
		switch i % 4 {
		case 0: // silent
		case 1: // garbage
			b := make([]byte, 1+rng.IntN(100))
			for j := range b {
				b[j] = byte(rng.Uint32())
			}
			_, _ = c.Write(b)
		case 2: // knows the magic, then silent
			_, _ = c.Write(s.fromConn[:8+rng.IntN(24)])
		case 3: // slow
			wg.Go(func() {
				tick := time.NewTicker(50 * time.Millisecond)
				defer tick.Stop()
				for _, b := range s.fromConn {
					select {
					case <-tick.C:
					case <-stop:
						return
					}
					if _, err := c.Write([]byte{b}); err != nil {
						return
					}
				}
			})
		}
	}
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		start := time.Now()
		done := make(chan *Conn, 1)
		go func() {
			c, err := Net{}.Connect(ctx, h, connector(t))
			if err != nil {
				t.Errorf("good peer: %v", err)
			}
			done <- c
		}()
		acc, err := l.Accept(ctx)
		if err != nil {
			t.Fatalf("good peer was not served: %v", err)
		}
		t.Logf("good peer served after %v beside %d hostile ones", time.Since(start).Round(time.Millisecond), clients)
		acc.Close()
		if c := <-done; c != nil {
			c.Close()
		}
		cancel()
	}
	// Half of them stay until they are dropped, the others leave.
	for _, c := range conns[:clients/2] {
		c.Close()
	}
	limit := time.Now().Add(30 * time.Second)
	for len(d.reasons()) < clients {
		if time.Now().After(limit) {
			t.Fatalf("%d of %d dropped", len(d.reasons()), clients)
		}
		time.Sleep(10 * time.Millisecond)
	}
	close(stop)
	wg.Wait()
	for _, c := range conns[clients/2:] {
		c.Close()
	}
	d.peer, d.why = nil, nil
	var after counts
	for {
		after = census(t)
		// The runtime and the test itself move by a little.
		if after.goroutines <= before.goroutines && after.fds <= before.fds && after.heap < before.heap+1<<20 {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("before %+v, after %+v", before, after)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

type counts struct {
	goroutines, fds int
	heap            uint64
}

func census(t *testing.T) counts {
	t.Helper()
	runtime.GC()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	c := counts{goroutines: runtime.NumGoroutine(), heap: ms.HeapAlloc}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		c.fds = len(fds)
	}
	return c
}

// A burst of good peers beyond the bound waits its turn; nobody is dropped for another, however long our own side takes.
func TestBurstOfGoodPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		n, d := mem.net()
		n.MaxPending = 4
		o := newOwners(t)
		plain := o.make
		o.make = func() *fake {
			f := plain()
			f.hook = func(string) { time.Sleep(2500 * time.Millisecond) } // longer than any grace
			return f
		}
		l := serve(t, n, o)
		const peers = 60
		conns := make(chan *Conn, peers)
		for range peers {
			go func() {
				n := n
				n.Retry.Each = time.Hour // a connection that waits in the system's queue is open for its peer
				c, err := n.Connect(t.Context(), l.Handle(), connector(t))
				if err != nil {
					t.Error(err)
				}
				conns <- c
			}()
		}
		for range peers {
			acc, err := l.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer acc.Close()
		}
		for range peers {
			if c := <-conns; c != nil {
				c.Close()
			}
		}
		l.Close()
		for _, why := range d.reasons() {
			t.Errorf("dropped: %v", why)
		}
	})
}
