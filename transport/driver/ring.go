package driver

import "context"

// Ringer is a [Connector] with a ring of messages beside its layout, over which processors send bytes faster than through the layout's
// steps.
type Ringer interface {
	// Ring is this end of the ring: a sending or a receiving one. Both are nil before Connect is done, and where there is no ring.
	Ring() (RingSender, RingReceiver)
}

// RingSender is the sending end of a ring, for one goroutine at a time. Only Wait waits. After the connector's Close the methods fail.
type RingSender interface {
	// TrySend sends b as one message as far as there is room. Until ok, b is the ring's, and the next call must be for the same b.
	TrySend(b []byte) (ok bool, err error)
	// Acquire gives n bytes of the ring, at most MaxAcquire, in which a message can be made, nil when there is no room. They stay mapped
	// until Commit, also if the connector is closed.
	Acquire(n int) ([]byte, error)
	MaxAcquire() int
	// Commit sends the first n bytes of what Acquire gave.
	Commit(n int) error
	// Wait returns when there may be room for what TrySend or Acquire has just found none for, when the connection has ended, which the
	// next call says, or when ctx ends.
	Wait(ctx context.Context) error
}

// RingReceiver is the receiving end, likewise.
type RingReceiver interface {
	// Next gives the next message, or the next part of a long one, in place; left is how many bytes of the message come after it. They
	// stay mapped until Release, also if the connector is closed. After the peer's last message the error is io.EOF if it has closed.
	Next() (b []byte, left int, ok bool, err error)
	Release() error
	// Wait returns when there is something to receive, when nothing more will come, which the next call says, or when ctx ends.
	Wait(ctx context.Context) error
}
