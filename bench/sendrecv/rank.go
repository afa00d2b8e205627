package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/purerdma/purerdma/internal/cause"
	"github.com/purerdma/purerdma/nettransport"
	"github.com/purerdma/purerdma/shmtransport"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/socketboot/launch"
	"github.com/purerdma/purerdma/transport"

	_ "github.com/purerdma/purerdma/ibverbs/softroce" // the network where there is no adapter
)

// member is one rank, connected with all others.
type member struct {
	t      *tool
	job    bootstrap.Job
	comm   *transport.Communicator
	group  *transport.Group
	rank   int
	size   int
	closes []func() error
}

// rank is all that this process does as a rank of the job. local says that all ranks are on this machine.
func (t *tool) rank(ctx context.Context, info launch.Info, local bool) (err error) {
	m := &member{t: t, rank: info.Rank, size: info.Size}
	defer func() {
		switch {
		case err != nil && m.job != nil:
			err = m.blame(ctx, err)
			m.job.Abort(err)
		case local && m.rank > 0 && isAbout(err, 0):
			err = lastWord(ctx, err)
		}
		if err = errors.Join(err, m.close()); err != nil {
			err = fmt.Errorf("rank %d: %w", m.rank, err)
		}
	}()
	if err := m.join(ctx, info, local); err != nil {
		return err
	}
	if err := m.agree(ctx); err != nil {
		return err
	}
	switch {
	case t.idle > 0:
		err = m.rest(ctx)
	case t.pattern == random:
		err = m.mesh(ctx)
	default:
		err = m.sweep(ctx)
	}
	if err != nil {
		return err
	}
	if err := m.job.Barrier(ctx); err != nil { // who is done earlier does not go
		return err
	}
	if m.rank == 0 {
		if err := t.print(); err != nil {
			return err
		}
	}
	if n := t.results.Wrong; n > 0 {
		return fmt.Errorf("%d bytes are wrong", n)
	}
	return nil
}

// join meets the others and connects with each.
func (m *member) join(ctx context.Context, info launch.Info, local bool) error {
	log := slog.New(slog.DiscardHandler)
	if m.t.verbose {
		log = slog.New(slog.NewTextHandler(m.t.out.Err, nil)).With("rank", m.rank)
	}
	config, err := nettransport.ConfigFromEnv(os.Getenv)
	if err != nil {
		return err
	}
	config.Log = log
	if local {
		config.Net.Bind = netip.MustParseAddrPort("127.0.0.1:0")
	}
	if n := len(m.t.devices); n > 0 {
		config.HCA = "=" + m.t.devices[m.rank%n]
	}
	joined, err := info.Meet(ctx, bootstrap.Config{Net: config.Net})
	if err != nil {
		return err
	}
	if local { // all have read the id
		removeID(info.IDFile)
	}
	m.job, m.closes = joined, append(m.closes, joined.Close)
	variables, err := transport.VariablesFromEnv(os.Getenv)
	if err != nil {
		return err
	}
	host := variables.HostID
	if n := m.t.hosts; n > 0 {
		host = "host " + strconv.Itoa(m.rank*min(n, m.size)/m.size)
	}
	self, err := transport.Identify(transport.World{}, host)
	if err != nil {
		return err
	}
	var transports []transport.Transport
	if m.t.transport != overNet {
		shm := shmtransport.New(shmtransport.Config{})
		transports, m.closes = append(transports, shm), append(m.closes, shm.Close)
	}
	if m.t.transport != overSHM {
		nics, err := nettransport.New(config)
		switch {
		case err == nil:
			transports, m.closes = append(transports, nics.Driver()), append(m.closes, nics.Close)
		case m.t.transport == automatic && config.HCA == "" && errors.Is(err, nettransport.ErrNoNIC): // the ranks of a host need none
			transports = append(transports, nettransport.Absent(err))
		default:
			return err
		}
	}
	m.job, transports = between(joined, transports)
	m.comm, err = transport.New(ctx, transport.Config{Job: m.job, Channels: m.t.channels, Log: log, Variables: &variables, Self: self, Transports: transports})
	if err != nil {
		return err
	}
	m.closes = append(m.closes, m.comm.Close)
	m.group = m.comm.NewGroup()
	return m.comm.Connect(ctx, transport.Pairs(m.rank, m.size, m.t.channels))
}

// between comes between a rank and what it talks by. A variable for tests.
var between = func(job bootstrap.Job, all []transport.Transport) (bootstrap.Job, []transport.Transport) {
	return job, all
}

// isAbout says that an error of the job concerns a rank.
func isAbout(err error, rank int) bool {
	var e *bootstrap.RankError
	return errors.As(err, &e) && e.Rank == rank
}

// blame adds what the job knows: where several ranks end, one after another, it names the first, which others need not be connected with.
func (m *member) blame(ctx context.Context, err error) error {
	select {
	case <-m.job.Done():
	case <-ctx.Done():
	case <-time.After(hearsay):
	}
	if why := m.job.Err(); why != nil && !errors.Is(err, why) {
		return errors.Join(why, err)
	}
	return err
}

// lastWord adds what rank 0, which ends since nobody is where it should be, says to those that it has started.
func lastWord(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return errors.Join(cause.Of(ctx), err)
	case <-time.After(lastPatience):
		return err
	}
}

// hearsay is how long the news of a rank's death may take after a connection has failed.
const hearsay = time.Second

// close ends all in the order that is the reverse of how it was made.
func (m *member) close() error {
	var errs []error
	for i := len(m.closes) - 1; i >= 0; i-- {
		errs = append(errs, m.closes[i]())
	}
	return errors.Join(errs...)
}

// said is what a rank tells all others before anything is measured.
type said struct {
	Seed  uint64         `json:"seed"` // rank 0's counts
	Links map[string]int `json:"links"`
}

// agree takes rank 0's seed, and counts what connects the ranks.
func (m *member) agree(ctx context.Context) error {
	mine := said{Seed: m.t.seed, Links: map[string]int{}}
	for peer := range m.size {
		if why, ok := m.comm.Why(transport.End{Peer: peer, Send: true}); ok {
			mine.Links[why.Transport]++
			if m.rank == 0 {
				m.t.results.Choices = append(m.t.results.Choices, choice{peer, why.Transport, why.String()})
			}
		}
	}
	all, err := gather(ctx, m.job, mine)
	if err != nil {
		return err
	}
	m.t.seed = all[0].Seed
	m.t.results.Links = map[string]int{}
	for _, one := range all {
		for name, n := range one.Links {
			m.t.results.Links[name] += n
		}
	}
	return nil
}

// together waits for the messages of the group.
func (m *member) together(ctx context.Context) error {
	err := m.group.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		return errors.Join(cause.Of(ctx), err)
	}
	return err
}
