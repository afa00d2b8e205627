package softroce

import (
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
)

// counters count what a device did and what it threw away.
type counters struct {
	received     atomic.Uint64 // packets
	malformed    atomic.Uint64 // headers that make no sense
	badICRC      atomic.Uint64
	unknownQP    atomic.Uint64
	wrongKey     atomic.Uint64 // P_Key
	wrongQKey    atomic.Uint64
	dropped      atomic.Uint64 // messages of UC and datagrams
	wrongAddress atomic.Uint64 // not from the peer of the QP
	wrongState   atomic.Uint64
	staleAnswers atomic.Uint64
	gaps         atomic.Uint64
	duplicates   atomic.Uint64

	rnrSent     atomic.Uint64
	invalidSent atomic.Uint64
	accessSent  atomic.Uint64
	failedSent  atomic.Uint64

	rnrNAKs      atomic.Uint64
	sequenceNAKs atomic.Uint64
	retries      atomic.Uint64
	timeouts     atomic.Uint64
	exhausted    atomic.Uint64
	rnrExhausted atomic.Uint64
	badResponses atomic.Uint64
	sendErrors   atomic.Uint64 // of the link

	marked      atomic.Uint64 // with congestion experienced
	cnpsSent    atomic.Uint64
	cnpsHandled atomic.Uint64
	cnpsIgnored atomic.Uint64
}

// list is all counters under the names that users see. What rxe counts has its
// name, else what mlx5 counts; the rest is in their manner.
func (c *counters) list(l link.Stats) []driver.Counter {
	return []driver.Counter{
		{Name: "sent_pkts", Value: l.SentPackets},
		{Name: "sent_bytes", Value: l.SentBytes},
		{Name: "send_err", Value: c.sendErrors.Load() + l.SendFailed},
		{Name: "rcvd_pkts", Value: c.received.Load()},
		{Name: "rcvd_bytes", Value: l.RecvBytes},
		{Name: "rcvd_buffer_drops", Value: l.RecvDropped},
		{Name: "rcvd_malformed_err", Value: c.malformed.Load()},
		{Name: "rcvd_icrc_err", Value: c.badICRC.Load()},
		{Name: "rcvd_pkey_err", Value: c.wrongKey.Load()},
		{Name: "rcvd_qkey_err", Value: c.wrongQKey.Load()},
		{Name: "rcvd_unknown_qp", Value: c.unknownQP.Load()},
		{Name: "rcvd_wrong_peer", Value: c.wrongAddress.Load()},
		{Name: "rcvd_wrong_state", Value: c.wrongState.Load()},
		{Name: "rcvd_stale_answer", Value: c.staleAnswers.Load()},
		{Name: "out_of_seq_request", Value: c.gaps.Load()},
		{Name: "duplicate_request", Value: c.duplicates.Load()},
		{Name: "dropped_messages", Value: c.dropped.Load()},
		{Name: "send_rnr_err", Value: c.rnrSent.Load()},
		{Name: "send_inv_req_err", Value: c.invalidSent.Load()},
		{Name: "send_access_err", Value: c.accessSent.Load()},
		{Name: "send_op_err", Value: c.failedSent.Load()},
		{Name: "rcvd_rnr_err", Value: c.rnrNAKs.Load()},
		{Name: "rcvd_seq_err", Value: c.sequenceNAKs.Load()},
		{Name: "completer_retry_err", Value: c.retries.Load()},
		{Name: "local_ack_timeout_err", Value: c.timeouts.Load()},
		{Name: "retry_exceeded_err", Value: c.exhausted.Load()},
		{Name: "retry_rnr_exceeded_err", Value: c.rnrExhausted.Load()},
		{Name: "bad_response_err", Value: c.badResponses.Load()},
		{Name: "np_ecn_marked_roce_packets", Value: c.marked.Load()},
		{Name: "np_cnp_sent", Value: c.cnpsSent.Load()},
		{Name: "rp_cnp_handled", Value: c.cnpsHandled.Load()},
		{Name: "rp_cnp_ignored", Value: c.cnpsIgnored.Load()},
	}
}

// refusal counts the NAK that ends a connection.
func (c *counters) refusal(v verdict) {
	switch v {
	case invalidRequest:
		c.invalidSent.Add(1)
	case accessDenied:
		c.accessSent.Add(1)
	case operationFailed:
		c.failedSent.Add(1)
	}
}

// failure counts how a request ended that ended its connection.
func (c *counters) failure(s driver.Status) {
	switch s {
	case driver.RetryExcErr:
		c.exhausted.Add(1)
	case driver.RNRRetryExcErr:
		c.rnrExhausted.Add(1)
	case driver.BadRespErr:
		c.badResponses.Add(1)
	}
}
