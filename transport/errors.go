package transport

import (
	"errors"
	"fmt"
)

// Causes, for errors.Is.
var (
	// ErrClosed is for calls on a Communicator that is closed.
	ErrClosed = errors.New("the communicator is closed")
	// ErrMasks says that the two ends of a connection do not mean the same channels.
	ErrMasks = errors.New("the ends do not agree on channels")
	// ErrNoTransport says that no transport can connect two ranks.
	ErrNoTransport = errors.New("no transport can connect the ranks")
	// ErrConfig says that ranks were made with configurations that do not fit each other.
	ErrConfig = errors.New("the ranks' configurations differ")
	// ErrPeerFailed says that another rank has failed; the error holds its words.
	ErrPeerFailed = errors.New("the rank failed")
	// ErrProtocol says that a rank sent what this protocol does not allow.
	ErrProtocol = errors.New("not the set-up's protocol")
)

// RankError is a failure to connect, and the rank at which it happened, which every rank's error names alike.
type RankError struct {
	Rank int
	Addr string // of its bootstrap
	Err  error  // at the rank itself what failed there; at the others ErrPeerFailed with its words
}

func (e *RankError) Error() string {
	return fmt.Sprintf("transport: rank %d at %s: %v", e.Rank, e.Addr, e.Err)
}

// Unwrap is the cause.
func (e *RankError) Unwrap() error { return e.Err }
