package transport

import (
	"errors"
	"fmt"
	"io"
	"syscall"
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
	// ErrProtocol says that a rank sent what the protocol of set-up or messages does not allow.
	ErrProtocol = errors.New("not this release's protocol")
	// ErrNotConnected says that messages to a rank have no connection.
	ErrNotConnected = errors.New("not connected for messages: all ranks must call Connect with Pairs, or other Links of ConnIndex 0, first")
	// ErrGPUMemory is for messages to be made or read in the memory of a connection that is a GPU's, which the processor does not reach.
	ErrGPUMemory = errors.New("the connection's memory is a GPU's: messages can be sent and received, but not made or read in place")
	// ErrPeerClosed says that the peer has closed its communicator, in order. It is also io.EOF.
	ErrPeerClosed = fmt.Errorf("the peer has closed its communicator: %w", io.EOF)
	// ErrCut says that a message was given up in its middle, by its sender, after which nothing more can be sent that way.
	ErrCut = errors.New("a message was given up in its middle, which ends the connection")
	// ErrHeld says that memory from Acquire or Next is out, or that Next has not given all of a message yet.
	ErrHeld = errors.New("memory from Acquire or Next is out, or the message that Next reads has more parts")
	// ErrNotHeld is for Commit without Acquire and Release without Next.
	ErrNotHeld = errors.New("no memory from Acquire or Next is out")
	// ErrSelf says that a rank has no connection with itself, in whose memory messages could be made.
	ErrSelf = errors.New("a rank has no connection with itself")
	// ErrTooLong is for a message larger than MaxMessage, or memory larger than MaxAcquire. It is also EMSGSIZE.
	ErrTooLong = fmt.Errorf("too long: %w", syscall.EMSGSIZE)
	errNoPeer  = errors.New("there is no such rank")
)

// PeerError is a message that has failed, and the rank it was to or from.
type PeerError struct {
	Op        string // "send to", "receive from", "acquire for", …
	Peer      int
	Addr      string // of its bootstrap
	Transport string // "SHM"; "" without a connection
	Err       error
}

func (e *PeerError) Error() string {
	way := ""
	if e.Addr != "" {
		way = " at " + e.Addr
	}
	if e.Transport != "" {
		way += " by " + e.Transport
	}
	return fmt.Sprintf("transport: %s rank %d%s: %v", e.Op, e.Peer, way, e.Err)
}

// Unwrap is the cause.
func (e *PeerError) Unwrap() error { return e.Err }

// SizeError says that a message was longer than the buffer given for it. The message is lost, and those after it are not touched. It is
// also io.ErrShortBuffer.
type SizeError struct{ Message, Buffer int } // bytes

func (e *SizeError) Error() string {
	return fmt.Sprintf("the message has %d bytes, the buffer %d", e.Message, e.Buffer)
}

// Is makes it io.ErrShortBuffer.
func (e *SizeError) Is(target error) bool { return target == io.ErrShortBuffer }

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
