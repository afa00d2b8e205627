package bootstrap

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purerdma/purerdma/socketboot"
)

var ip4 = netip.MustParseAddrPort("127.0.0.1:0")

func loopback(t testing.TB, bind netip.AddrPort) socketboot.Net {
	return socketboot.Net{Bind: bind, Retry: socketboot.Retry{Times: 3, Unit: 10 * time.Millisecond}}
}

func root(t testing.TB, c RootConfig) *Root {
	t.Helper()
	r, err := NewRoot(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// each runs f for all ranks at the same time.
func each(n int, f func(rank int)) {
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() { f(rank) })
	}
	all.Wait()
}

// overTCP lets n ranks meet.
func overTCP(t testing.TB, n int, change func(*Config)) []*Member {
	t.Helper()
	c := Config{Size: n, Net: loopback(t, ip4)}
	if change != nil {
		change(&c)
	}
	r := root(t, RootConfig{Net: c.Net})
	c.ID = r.ID()
	members := make([]*Member, n)
	each(n, func(rank int) {
		mine := c
		mine.Rank = rank
		m, err := Join(t.Context(), mine)
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
			return
		}
		members[rank] = m
	})
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { each(n, func(rank int) { _ = members[rank].Close() }) })
	return members
}

// kill ends a member as the death of its process does: without a word.
func (m *Member) kill() {
	m.fail(errors.New("killed by the test"))
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
	m.closing.Do(func() {
		m.cancel()
		_ = m.next.Close()
		_ = m.prev.Close()
		m.door.close()
		m.work.Wait()
	})
}

// jobs are both kinds of Job.
func jobs(t *testing.T, n int, f func(t *testing.T, jobs []Job, kill func(rank int))) {
	t.Run("memory", func(t *testing.T) {
		members := InMemory(n, nil)
		all := make([]Job, n)
		for i, m := range members {
			all[i] = m
			defer m.Close()
		}
		f(t, all, func(rank int) { members[rank].Kill() })
	})
	t.Run("TCP", func(t *testing.T) {
		members := overTCP(t, n, nil)
		all := make([]Job, n)
		for i, m := range members {
			all[i] = m
		}
		f(t, all, func(rank int) { members[rank].kill() })
	})
}

// soon bounds what must not hang.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// names checks that an error is about a rank, for a reason, and tells the words.
func names(t testing.TB, err error, rank int, reason error, words ...string) {
	t.Helper()
	var e *RankError
	if !errors.As(err, &e) || e.Rank != rank || !errors.Is(err, reason) {
		t.Errorf("got %v, want rank %d: %v", err, rank, reason)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not tell %q", err, w)
		}
	}
}
