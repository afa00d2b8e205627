package softroce

import "sync/atomic"

// counters count what a device did and what it threw away.
type counters struct {
	received     atomic.Uint64 // packets
	malformed    atomic.Uint64 // headers that make no sense
	badICRC      atomic.Uint64
	unknownQP    atomic.Uint64
	wrongKey     atomic.Uint64 // P_Key
	wrongAddress atomic.Uint64 // not from the peer of the QP
	wrongState   atomic.Uint64
	staleAnswers atomic.Uint64
	gaps         atomic.Uint64
	duplicates   atomic.Uint64
	rnrSent      atomic.Uint64
	rnrNAKs      atomic.Uint64
	sequenceNAKs atomic.Uint64
	retries      atomic.Uint64
	timeouts     atomic.Uint64
	sendErrors   atomic.Uint64 // of the link
}
