package main

import (
	"github.com/purerdma/purerdma/bench/advise"
	"github.com/purerdma/purerdma/bench/plan"
	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/bench/stats"
	"github.com/purerdma/purerdma/bench/tune"
	"github.com/purerdma/purerdma/qp"
)

const (
	schemaName    = "purerdma.qptune"
	schemaVersion = 1
)

// document is what --json prints. Lists are never null; objects are null where the run did not get there.
type document struct {
	report.Head
	Mode           string             `json:"mode"`
	Plan           *planDoc           `json:"plan"`
	Sender         *tune.Description  `json:"sender"`
	Receiver       *tune.Description  `json:"receiver"`
	Connections    []connectionDoc    `json:"connections"`
	Rounds         int                `json:"rounds_completed"`
	Results        []resultDoc        `json:"results"`
	Recommendation *recommendationDoc `json:"recommendation"`
	Served         *servedDoc         `json:"served"`
	Notes          []string           `json:"notes"`
}

type planDoc struct {
	QPs        []int           `json:"qps_per_connection"`
	Sizes      []int           `json:"sizes_bytes"`
	Split      plan.Modes      `json:"split"`
	Depth      int             `json:"depth"`
	Rounds     int             `json:"rounds"`
	Budget     report.Number   `json:"budget_s"`
	Seed       uint64          `json:"seed"`
	Tolerance  report.Number   `json:"tolerance_percent"`
	Attributes tune.Attributes `json:"attributes"`
}

type settingDoc struct {
	QPs   int  `json:"qps_per_connection"`
	Split bool `json:"split"`
}

type connectionDoc struct {
	settingDoc
	Paths []pathDoc `json:"paths"`
}

type pathDoc struct {
	Device        string `json:"device"`
	Port          int    `json:"port"`
	LocalGID      string `json:"local_gid"`
	LocalGIDIndex int    `json:"local_gid_index"`
	RemoteGID     string `json:"remote_gid"`
	LocalQPN      uint32 `json:"local_qpn"`
	RemoteQPN     uint32 `json:"remote_qpn"`
	FlowLabel     uint32 `json:"flow_label"`      // 0: chosen by the device
	UDPSourcePort uint16 `json:"udp_source_port"` // 0: not RoCE v2
	TrafficClass  uint8  `json:"traffic_class"`
	ServiceLevel  uint8  `json:"service_level"`
	MTU           int    `json:"mtu_bytes"`
}

type resultDoc struct {
	settingDoc
	Size      int             `json:"size_bytes"`
	Messages  int             `json:"messages"`
	Bandwidth report.Number   `json:"bw_avg_gbps"` // median of the rounds, each an average over its messages
	Low       report.Number   `json:"bw_low_gbps"` // the median lies between low and high with that confidence
	High      report.Number   `json:"bw_high_gbps"`
	Sure      report.Number   `json:"bw_confidence"`
	Rounds    []report.Number `json:"bw_rounds_gbps"`
	Rate      report.Number   `json:"msg_rate_mpps"`
	P50       report.Number   `json:"lat_p50_us"` // half of a round trip
	P99       report.Number   `json:"lat_p99_us"`
	Samples   int             `json:"lat_samples"`
}

type recommendationDoc struct {
	settingDoc
	Environment string          `json:"environment"`
	Sure        bool            `json:"sure"`
	Why         string          `json:"why"`
	BySize      []sizeChoiceDoc `json:"by_size"`
}

type sizeChoiceDoc struct {
	Size int `json:"size_bytes"`
	settingDoc
	Gain report.Number `json:"gain_over_fewest_qps"` // factor
	Sure bool          `json:"sure"`
	Why  string        `json:"why"`
}

type servedDoc struct {
	Peer        string `json:"peer"`
	Connections int    `json:"connections"`
	Runs        int    `json:"runs"`
	Messages    int64  `json:"messages"`
	Bytes       int64  `json:"bytes"`
}

// document is what is known when the run has ended, however it ended.
func (t *tool) document(h report.Head) any {
	d := document{Head: h, Mode: t.mode, Connections: []connectionDoc{}, Results: []resultDoc{}, Notes: append([]string{}, t.notes...)}
	if s := t.spec; s != nil {
		d.Plan = &planDoc{QPs: s.QPs, Sizes: s.Sizes, Split: s.Modes, Depth: s.Depth, Rounds: s.Rounds, Budget: report.Number(s.Budget.Seconds()),
			Seed: s.Seed, Tolerance: report.Number(t.flags.tolerance), Attributes: t.flags.attrs}
	}
	if r := t.result; r != nil {
		d.Sender, d.Receiver = known(r.Sender), known(r.Receiver)
		d.Rounds = r.Rounds
		d.Notes = append(d.Notes, r.Notes...)
		for i, paths := range r.Paths {
			d.Connections = append(d.Connections, connectionDoc{setting(r.Settings[i]), pathDocs(paths)})
		}
		for _, c := range r.Cases {
			if r.Rounds > 0 {
				d.Results = append(d.Results, result(*r, c))
			}
		}
	}
	if t.advice != nil {
		d.Recommendation = recommendation(t.result.Settings, t.advice)
	}
	if s := t.session; s != nil {
		d.Sender, d.Receiver = known(s.Other), known(s.This)
		d.Served = &servedDoc{Peer: s.Peer, Connections: s.Connections, Runs: s.Runs, Messages: s.Messages, Bytes: s.Bytes}
	}
	return d
}

func known(d tune.Description) *tune.Description {
	if d == (tune.Description{}) {
		return nil
	}
	return &d
}

func setting(s plan.Setting) settingDoc { return settingDoc{s.QPs, s.Split} }

func pathDocs(paths []qp.Path) []pathDoc {
	docs := make([]pathDoc, len(paths))
	for i, p := range paths {
		docs[i] = pathDoc{Device: p.Device, Port: p.Port, LocalGID: p.Local.String(), LocalGIDIndex: p.GIDIndex, RemoteGID: p.Remote.String(),
			LocalQPN: p.LocalQPN, RemoteQPN: p.RemoteQPN, FlowLabel: p.FlowLabel, UDPSourcePort: p.UDPSourcePort,
			TrafficClass: p.TrafficClass, ServiceLevel: p.ServiceLevel, MTU: p.MTU.Bytes()}
	}
	return docs
}

// gbps is bytes a second in 10^9 bits a second.
func gbps(bandwidth float64) float64 { return bandwidth * 8 / 1e9 }

func result(r tune.Result, c tune.CaseResult) resultDoc {
	iv := stats.MedianInterval(c.Bandwidth, advise.Confidence)
	rounds := make([]report.Number, len(c.Bandwidth))
	for i, b := range c.Bandwidth {
		rounds[i] = report.Number(gbps(b))
	}
	return resultDoc{settingDoc: setting(r.Settings[c.Setting]), Size: c.Size, Messages: c.Messages,
		Bandwidth: report.Number(gbps(iv.Mid)), Low: report.Number(gbps(iv.Low)), High: report.Number(gbps(iv.High)), Sure: report.Number(iv.Confidence),
		Rounds: rounds, Rate: report.Number(iv.Mid / float64(c.Size) / 1e6),
		P50: report.Number(stats.Quantile(c.Half, 0.5) / 1e3), P99: report.Number(stats.Quantile(c.Half, 0.99) / 1e3), Samples: len(c.Half)}
}

func recommendation(settings []plan.Setting, a *advice) *recommendationDoc {
	pick := settings[a.overall.Pick]
	d := &recommendationDoc{settingDoc: setting(pick), Environment: environment(pick), Sure: a.overall.Sure, Why: a.overall.Why, BySize: []sizeChoiceDoc{}}
	for _, s := range a.bySize {
		d.BySize = append(d.BySize, sizeChoiceDoc{Size: s.size, settingDoc: setting(settings[s.Pick]), Gain: report.Number(s.Gain.Mid), Sure: s.Sure, Why: s.Why})
	}
	return d
}
