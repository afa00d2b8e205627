package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/internal/racetest"
	"github.com/purerdma/purerdma/transport"
)

// edges are sizes at which something changes: inline, lines, steps of the small and of NCCL's buffers, parts on a second channel, pieces.
var edges = []int{0, 1, 7, 8, 9, 23, 24, 25, 31, 32, 33, 56, 57, 63, 64, 65, 4096, 8191, 8192, 8193, 1<<15 - 64, 1<<15 - 63, 1 << 15, 1<<16 - 1, 1 << 16,
	1<<16 + 1, 1<<17 - 64, 1<<17 - 63, 1<<17 + 1, 3<<16 + 5, 1<<18 + 1, 1<<20 + 3, 3<<20 + 1}

func ways(t *testing.T, test func(t *testing.T, p plan)) {
	for name, hosts := range map[string][]string{"SHM": oneHost(2), "NET": hosts(2)} {
		for _, channels := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s, %d channels", name, channels), func(t *testing.T) {
				test(t, plan{hosts: hosts, channels: channels, buffer: 1 << 18})
			})
		}
	}
}

// Messages of all sizes arrive whole and in their order, both ways at once.
func TestMessages(t *testing.T) {
	ways(t, func(t *testing.T, p plan) {
		c, ctx := newCrew(t, p), short(t)
		if why, ok := c[0].Why(transport.End{Peer: 1, Send: true}); !ok || why.Transport != strings.Split(t.Name(), "/")[1][:3] {
			t.Errorf("%v", why)
		}
		var all sync.WaitGroup
		for rank := range 2 {
			all.Go(func() {
				for i, n := range edges {
					if err := c[rank].Send(ctx, 1-rank, fill(make([]byte, n), uint64(i*2+rank))); err != nil {
						t.Error(err)
						return
					}
				}
			})
			all.Go(func() {
				buf := make([]byte, 4<<20)
				for i, want := range edges {
					n, err := c[1-rank].Recv(ctx, rank, buf)
					if err != nil || n != want || !bytes.Equal(buf[:n], fill(make([]byte, n), uint64(i*2+rank))) {
						t.Errorf("%d bytes, want %d, or other bytes: %v", n, want, err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}

// A circle of ranks, on two hosts, in which all send before they could receive.
func TestSendRecvInACircle(t *testing.T) {
	const n = 5
	c, ctx := newCrew(t, plan{hosts: []string{"a", "a", "b", "b", "b"}, channels: 2}), short(t)
	each(n, func(rank int) {
		in := make([]byte, 3<<20)
		for i, size := range []int{0, 8, 100000, 3 << 20} {
			out := fill(make([]byte, size), uint64(rank+i*n))
			got, err := c[rank].SendRecv(ctx, (rank+1)%n, out, (rank+n-1)%n, in)
			if err != nil || got != size || !bytes.Equal(in[:got], fill(make([]byte, size), uint64((rank+n-1)%n+i*n))) {
				t.Errorf("rank %d: %d bytes, want %d, or other bytes: %v", rank, got, size, err)
				return
			}
		}
	})
}

func TestMessagesToOneself(t *testing.T) {
	c, ctx := newCrew(t, plan{hosts: oneHost(1)})[0], short(t)
	in := make([]byte, 100)
	for _, size := range []int{0, 5, 100} {
		out := fill(make([]byte, size), uint64(size))
		if n, err := c.SendRecv(ctx, 0, out, 0, in); err != nil || !bytes.Equal(in[:n], out) {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	var size *transport.SizeError
	if _, err := c.SendRecv(ctx, 0, make([]byte, 101), 0, in); !errors.As(err, &size) || *size != (transport.SizeError{Message: 101, Buffer: 100}) {
		t.Error(err)
	}
	var both sync.WaitGroup
	both.Go(func() {
		for i := range 100 {
			if err := c.Send(ctx, 0, []byte{byte(i)}); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 100 {
		if n, err := c.Recv(ctx, 0, in); err != nil || n != 1 || in[0] != byte(i) {
			t.Errorf("message %d is %d, %v", i, in[0], err)
		}
	}
	both.Wait()
	soon, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Recv(soon, 0, in); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n, err := c.SendRecv(ctx, 0, []byte("after"), 0, in); err != nil || string(in[:n]) != "after" {
		t.Error(n, err)
	}
	both.Go(func() {
		if _, err := c.Recv(ctx, 0, in); !errors.Is(err, transport.ErrClosed) {
			t.Error(err)
		}
	})
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	both.Wait()
}

// A message that is too long is an error that names both sizes, and no other message is harmed.
func TestMessageTooLongForTheBuffer(t *testing.T) {
	ways(t, func(t *testing.T, p plan) {
		c, ctx := newCrew(t, p), short(t)
		sizes := []int{9, 25, 5000, 70000, 1 << 20}
		var both sync.WaitGroup
		both.Go(func() {
			for _, n := range sizes {
				for _, b := range [][]byte{make([]byte, n), []byte("between")} {
					if err := c[0].Send(ctx, 1, b); err != nil {
						t.Error(err)
					}
				}
			}
		})
		for _, n := range sizes {
			var size *transport.SizeError
			var peer *transport.PeerError
			got, err := c[1].Recv(ctx, 0, make([]byte, 8))
			if !errors.As(err, &size) || *size != (transport.SizeError{Message: n, Buffer: 8}) || !errors.Is(err, io.ErrShortBuffer) || got != 0 ||
				!errors.As(err, &peer) || peer.Peer != 0 {
				t.Errorf("%d, %v", got, err)
			}
			buf := make([]byte, 8)
			if got, err := c[1].Recv(ctx, 0, buf); err != nil || string(buf[:got]) != "between" {
				t.Errorf("%q, %v", buf[:got], err)
			}
		}
		both.Wait()
	})
}

// Several goroutines send to one rank, several of which receive: each message arrives once, and those of one goroutine in order.
func TestMessagesOfManyGoroutines(t *testing.T) {
	const callers, count = 4, 200
	ways(t, func(t *testing.T, p plan) {
		c, ctx := newCrew(t, p), short(t)
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for i := range count {
					if err := c[0].Send(ctx, 1, fill(make([]byte, 2+i*i), uint64(caller*count+i))); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		var mu sync.Mutex
		seen := map[string]bool{}
		for range callers {
			all.Go(func() {
				b := make([]byte, 2+count*count)
				for range count {
					n, err := c[1].Recv(ctx, 0, b)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					seen[string(b[:n])] = true
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for i := range callers * count {
			if k := i % count; !seen[string(fill(make([]byte, 2+k*k), uint64(i)))] {
				t.Errorf("message %d of goroutine %d is missing", k, i/count)
			}
		}
	})
}

// What waits ends with its context: nothing is lost then unless a message was in its middle.
func TestMessagesGivenUp(t *testing.T) {
	ways(t, func(t *testing.T, p plan) {
		c, ctx := newCrew(t, p), short(t)
		soon := func() context.Context {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		}
		b := make([]byte, 16)
		// Nothing comes; one of the two waits for its turn.
		each(2, func(int) {
			if _, err := c[1].Recv(soon(), 0, make([]byte, 8)); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		exchange := func(text string) {
			t.Helper()
			each(2, func(rank int) {
				if rank == 0 {
					if err := c[0].Send(ctx, 1, []byte(text)); err != nil {
						t.Error(err)
					}
				} else if n, err := c[1].Recv(ctx, 0, b); err != nil || string(b[:n]) != text {
					t.Errorf("%q, %v", b[:n], err)
				}
			})
		}
		exchange("first")

		// The receiver gives up in the middle, or before: what it receives in the end is the next message.
		const huge = 64 << 20
		long := make([]byte, huge)
		each(2, func(rank int) {
			if rank == 0 {
				for _, b := range [][]byte{make([]byte, huge), []byte("second")} {
					if err := c[0].Send(ctx, 1, b); err != nil {
						t.Error(err)
					}
				}
				return
			}
			for limit := time.Millisecond; ; limit *= 2 {
				soon, cancel := context.WithTimeout(ctx, limit)
				n, err := c[1].Recv(soon, 0, long)
				cancel()
				switch {
				case err == nil && n != huge:
					if string(long[:n]) != "second" {
						t.Errorf("a message of %d bytes", n)
					}
					return
				case err != nil && !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
					t.Error(err)
					return
				}
			}
		})

		// The sender gives up in the middle: the connection ends at both ends.
		err := c[0].Send(soon(), 1, make([]byte, huge))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, transport.ErrCut) {
			t.Error(err)
		}
		if err := c[0].Send(ctx, 1, nil); !errors.Is(err, transport.ErrCut) {
			t.Error(err)
		}
		for {
			var peer *transport.PeerError
			if _, err := c[1].Recv(ctx, 0, long); err != nil {
				if !errors.As(err, &peer) || peer.Peer != 0 || ctx.Err() != nil {
					t.Error(err)
				}
				t.Log(err)
				break
			}
		}
		// The other way is not touched.
		each(2, func(rank int) {
			if rank == 1 {
				if err := c[1].Send(ctx, 0, []byte("back")); err != nil {
					t.Error(err)
				}
			} else if n, err := c[0].Recv(ctx, 1, b); err != nil || string(b[:n]) != "back" {
				t.Errorf("%q, %v", b[:n], err)
			}
		})
	})
}

// A communicator that closes ends its own calls and those of its peers, which name it.
func TestCloseEndsMessages(t *testing.T) {
	ways(t, func(t *testing.T, p plan) {
		c, ctx := newCrew(t, p), short(t)
		if _, err := c[0].SendRecv(ctx, 0, nil, 0, nil); err != nil {
			t.Error(err)
		}
		var all sync.WaitGroup
		for range 2 { // one waits for its turn
			all.Go(func() {
				for {
					if _, err := c[0].Recv(ctx, 1, make([]byte, 2<<20)); err != nil {
						if !errors.Is(err, transport.ErrClosed) && !errors.Is(err, io.ErrShortBuffer) {
							t.Error(err)
						}
						return
					}
				}
			})
			all.Go(func() {
				var peer *transport.PeerError
				_, err := c[1].Recv(ctx, 0, nil)
				if !errors.As(err, &peer) || peer.Peer != 0 || peer.Transport == "" || ctx.Err() != nil {
					t.Error(err)
				}
				t.Log(err)
			})
		}
		all.Go(func() {
			for i := 0; ; i++ {
				if err := c[1].Send(ctx, 0, make([]byte, i<<20)); err != nil {
					if t.Log(err); ctx.Err() != nil {
						t.Error(err)
					}
					return
				}
			}
		})
		if _, err := c[0].Recv(ctx, 1, nil); err != nil && !errors.Is(err, io.ErrShortBuffer) { // one of the others may have the message without bytes
			t.Error(err)
		}
		if err := c[0].Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		if err := c[0].Send(ctx, 1, nil); !errors.Is(err, transport.ErrClosed) {
			t.Error(err)
		}
	})
}

// What was sent before Close arrives after it.
func TestLastMessagesArrive(t *testing.T) {
	ways(t, func(t *testing.T, p plan) {
		c, ctx := newCrew(t, p), short(t)
		b := make([]byte, 100)
		each(2, func(rank int) {
			if rank == 0 {
				if err := c[0].Send(ctx, 1, b[:1]); err != nil {
					t.Error(err)
				}
			} else if _, err := c[1].Recv(ctx, 0, make([]byte, 1)); err != nil {
				t.Error(err)
			}
		})
		if p.channels == 1 { // room for the next ones is there
			for i := range 3 {
				if err := c[0].Send(ctx, 1, b[:10+i]); err != nil {
					t.Error(err)
				}
			}
			if err := c[0].Close(); err != nil {
				t.Error(err)
			}
			for i := range 3 {
				if n, err := c[1].Recv(ctx, 0, b); err != nil || n != 10+i {
					t.Error(n, err)
				}
			}
			if _, err := c[1].Recv(ctx, 0, b); err == nil || ctx.Err() != nil {
				t.Error(err)
			}
		}
	})
}

func TestMessagesRefused(t *testing.T) {
	ctx := short(t)
	c := newCrew(t, plan{hosts: oneHost(2), alone: true})
	for _, peer := range []int{-1, 2, 1 << 40} {
		if err := c[0].Send(ctx, peer, nil); err == nil || !strings.Contains(err.Error(), fmt.Sprint(peer)) {
			t.Error(err)
		}
		if _, err := c[0].Recv(ctx, peer, nil); err == nil {
			t.Error("received")
		}
	}
	if err := c[0].Send(ctx, 1, nil); !errors.Is(err, transport.ErrNotConnected) {
		t.Error(err)
	}
	if err := c[0].Close(); err != nil {
		t.Error(err)
	}
	if _, err := c[0].Recv(ctx, 1, nil); !errors.Is(err, transport.ErrClosed) {
		t.Error(err)
	}
	for _, is := range [][2]error{{transport.ErrTooLong, syscall.EMSGSIZE}, {transport.ErrPeerClosed, io.EOF}} {
		if !errors.Is(is[0], is[1]) {
			t.Errorf("%v is not %v", is[0], is[1])
		}
	}
}

func TestMessagesDoNotAllocate(t *testing.T) {
	if racetest.Enabled {
		t.Skip("pools forget under the race detector")
	}
	ways(t, func(t *testing.T, p plan) {
		c, ctx := newCrew(t, p), short(t)
		over := make(chan struct{})
		go func() {
			defer close(over)
			b := make([]byte, 1<<20)
			for {
				n, err := c[1].Recv(ctx, 0, b)
				if err == nil {
					err = c[1].Send(ctx, 0, b[:n])
				}
				if err != nil {
					return
				}
			}
		}()
		in := make([]byte, 1<<20)
		for _, size := range []int{8, 4096, 200 << 10} {
			out := make([]byte, size)
			if got := testing.AllocsPerRun(50, func() {
				if err := c[0].Send(ctx, 1, out); err != nil {
					t.Fatal(err)
				}
				if n, err := c[0].SendRecv(ctx, 0, out, 0, in); n != size || err != nil {
					t.Fatal(err)
				}
				if _, err := c[0].Recv(ctx, 1, in); err != nil {
					t.Fatal(err)
				}
			}); got >= 1 {
				t.Errorf("%d bytes there and back allocate %v times", size, got)
			}
		}
		if err := c[0].Close(); err != nil {
			t.Error(err)
		}
		<-over
	})
}
