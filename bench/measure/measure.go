// Package measure is the loops of the benchmarks: a stream of messages, and a ping-pong, over anything that moves messages in order.
//
// # Waiting
//
// The loops poll. Looks that find nothing yield to other goroutines now and then (runtime.Gosched): a Go thread that spins keeps its
// processor for up to 10 ms, and with two ends on two processors that made messages ten times slower. Where the processor itself
// moves the packets, as for Soft-RoCE, spinning takes it away from them: there the loops can be told to nap in between, which
// shortened the latency of small messages on two processors. On hardware they must not, since the shortest nap is longer than what they measure.
package measure

import "errors"

// Direction is one end of a one-way connection: messages are sent, or buffers offered, in order.
type Direction interface {
	// Start sends the n bytes from off of the end's buffer, or offers them for the next message. It does not wait: ok is false
	// when it has to be called again later.
	Start(off, n int) (ok bool, err error)
	// Finished reports whether the oldest that was started and not yet reported is done, and the size of its message.
	Finished() (n int, done bool, err error)
}

// ErrSize is in the error of a message that arrived with another size than it was sent with.
var ErrSize = errors.New("message has the wrong size")

// Ring is the buffer as slots, one for each message in flight. A message that starts takes the slot after that of the one before.
type Ring struct {
	Off, Stride, Slots int
}

func (r Ring) at(i int) int { return r.Off + i%r.Slots*r.Stride }
