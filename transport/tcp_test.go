package transport

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
)

// The same over TCP: connect, fail, connect again, and a rank that goes in the middle.
func TestOverTCP(t *testing.T) {
	const n = 5
	network := socketboot.Net{Bind: netip.MustParseAddrPort("127.0.0.1:0")}
	root, err := bootstrap.NewRoot(t.Context(), bootstrap.RootConfig{Net: network})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	w := &world{f: newFabric(), comms: make([]*Communicator, n)}
	jobs := make([]*bootstrap.Member, n)
	each(n, func(rank int) {
		job, err := bootstrap.Join(t.Context(), bootstrap.Config{ID: root.ID(), Rank: rank, Size: n, Net: network})
		if err != nil {
			t.Error(err)
			return
		}
		jobs[rank] = job
		w.comms[rank], err = New(t.Context(), Config{Job: job, Channels: 2, Log: quiet, Variables: defaultVariables(),
			Transports: []Transport{&fake{name: "SHM", f: w.f, rank: rank}}})
		if err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		return
	}
	defer each(n, func(rank int) { _, _ = w.comms[rank].Close(), jobs[rank].Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	broken := false
	w.f.fault = func(rank int, what string, e End) error {
		if rank == 3 && what == "connect" && !broken {
			broken = true
			return errBroken
		}
		return nil
	}
	failedAt(t, w.connect(ctx, mesh(n, 2)), 3, errBroken, jobs[0].Addr(3))
	w.f.none(t)
	for rank, err := range w.connect(ctx, mesh(n, 2)) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	w.connected(t, mesh(n, 2))

	w.f.fault = func(rank int, what string, e End) error {
		if rank == 3 && what == "connect" {
			jobs[3].Abort(errors.New("enough"))
			return errNever
		}
		return nil
	}
	for rank, err := range w.connect(ctx, ring(n, 2)) {
		var e *bootstrap.RankError
		if !errors.As(err, &e) || e.Rank != 3 || !errors.Is(err, bootstrap.ErrAborted) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
