//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport"
	"github.com/purerdma/purerdma/transport/driver"
)

// The kinds of calls before which a rank can die, over SHM and NET alike.
const (
	inJob     = "job"     // all-gathers, barriers and messages of the bootstrap, those between rounds of data too
	inSelect  = "select"  // CanConnect
	inSetup   = "setup"   // Setup
	inConnect = "connect" // Connect of a connector
)

// death is where a rank dies: before the nth call of a kind.
type death struct {
	rank int
	at   string
	n    int
}

func (d death) String() string { return fmt.Sprintf("%d before %s %d", d.rank, d.at, d.n) }

func (d *death) scan(s string) bool {
	_, err := fmt.Sscanf(s, "%d before %s %d", &d.rank, &d.at, &d.n)
	return err == nil
}

// deaths are one before each call that every rank of manyRounds makes until all are connected, and some in data.
var deaths = func() (all []death) {
	for _, of := range []death{{0, inJob, 24}, {0, inSelect, 4}, {0, inSetup, 12}, {0, inConnect, 12}} {
		for n := 1; n <= of.n; n++ {
			all = append(all, death{0, of.at, n})
		}
	}
	return all
}()

// mortal counts the calls of a rank and kills its process, which says no more than when, where it is due.
type mortal struct {
	death

	mu    sync.Mutex
	calls map[string]int
}

const dies = "dies at "

func (m *mortal) step(at string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls[at]++; m.at == at && m.calls[at] == m.n {
		fmt.Fprintln(os.Stderr, dies+time.Now().Format(time.RFC3339Nano))
		die()
	}
}

// saidAt is when a rank said that it dies, zero if none has.
func saidAt(stderr string) time.Time {
	_, rest, _ := strings.Cut(stderr, dies)
	word, _, _ := strings.Cut(rest, "\n")
	at, _ := time.Parse(time.RFC3339Nano, word)
	return at
}

func (m *mortal) between(job bootstrap.Job, all []transport.Transport) (bootstrap.Job, []transport.Transport) {
	for i, t := range all {
		all[i] = mortalTransport{t, m}
	}
	return mortalJob{job, m}, all
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

type mortalTransport struct {
	transport.Transport
	m *mortal
}

func (t mortalTransport) CanConnect(self, peer *transport.PeerInfo) transport.Verdict {
	t.m.step(inSelect)
	return t.Transport.CanConnect(self, peer)
}

func (t mortalTransport) Setup(r driver.Request, out *transport.Blob) (transport.Connector, error) {
	t.m.step(inSetup)
	c, err := t.Transport.Setup(r, out)
	if err != nil {
		return nil, err
	}
	return mortalConnector{c, t.m}, nil
}

// mortalConnector is never used for messages by a rank that lives: what it hides of the connector does not matter.
type mortalConnector struct {
	transport.Connector
	m *mortal
}

func (c mortalConnector) Connect(in *transport.Blob) (bool, error) {
	c.m.step(inConnect)
	return c.Connector.Connect(in)
}
