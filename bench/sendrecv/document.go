package main

import (
	"github.com/purerdma/purerdma/bench/report"
)

const (
	schemaName    = "purerdma.sendrecv"
	schemaVersion = 1
)

// results is what was measured, at every rank the same but for Choices, which is rank 0's.
type results struct {
	Links   map[string]int // directions between two ranks by transport
	Choices []choice
	Rows    []row
	Mesh    *meshed
	Idle    *rested
	Wrong   int64
}

// choice is what connects rank 0 with a peer.
type choice struct {
	Peer      int    `json:"peer"`
	Transport string `json:"transport"`
	Why       string `json:"why"`
}

// document is what --json prints.
type document struct {
	report.Head
	Ranks     int            `json:"ranks"`
	Pattern   string         `json:"pattern"`
	Transport string         `json:"transport"`
	Channels  int            `json:"channels"`
	Hosts     int            `json:"hosts"`
	Seed      uint64         `json:"seed"`
	Links     map[string]int `json:"links"`
	Choices   []choice       `json:"choices_of_rank_0"`
	Rows      []rowDoc       `json:"rows"`
	Mesh      *meshDoc       `json:"random"`
	Idle      *idleDoc       `json:"idle"`
	Wrong     int64          `json:"wrong_bytes"`
}

type rowDoc struct {
	Size   int             `json:"size_bytes"`
	Iters  int             `json:"iterations"`
	Time   report.Number   `json:"time_s"`
	Times  []report.Number `json:"times_s"`
	AlgBW  report.Number   `json:"algbw_GBps"`
	BusBW  report.Number   `json:"busbw_GBps"`
	Wrong  int64           `json:"wrong_bytes"`
	Rounds int             `json:"rounds"`
}

type meshDoc struct {
	Messages int64         `json:"messages"`
	Bytes    int64         `json:"total_bytes"`
	Smallest int           `json:"smallest_bytes"`
	Largest  int           `json:"largest_bytes"`
	Time     report.Number `json:"time_s"`
	Wrong    int64         `json:"wrong_bytes"`
}

type idleDoc struct {
	Time report.Number `json:"time_s"`
	Used report.Number `json:"processor_time_s"`
	Core report.Number `json:"core_percent"`
}

func (t *tool) document(h report.Head) any {
	d := document{Head: h, Ranks: t.ranks, Pattern: t.pattern, Transport: t.transport, Channels: t.channels, Hosts: t.hosts, Seed: t.seed, Links: t.results.Links,
		Choices: t.results.Choices, Rows: []rowDoc{}, Wrong: t.results.Wrong}
	for _, r := range t.results.Rows {
		d.Rows = append(d.Rows, rowDoc{r.Size, r.Iters, report.Number(r.time()), report.Numbers(r.Times), report.Number(r.algbw()), report.Number(r.busbw()), r.Wrong, len(r.Times)})
	}
	if m := t.results.Mesh; m != nil {
		d.Mesh = &meshDoc{m.Messages, m.Bytes, m.Smallest, m.Largest, report.Number(m.Time), m.Wrong}
	}
	if i := t.results.Idle; i != nil {
		d.Idle = &idleDoc{report.Number(i.Time), report.Number(i.Used), report.Number(i.core())}
	}
	return d
}
