package bootstrap

import (
	"context"
	"errors"
	"fmt"
)

// Job is one rank's end of a job. Methods may be called from any goroutine; a context bounds each wait, and after [Job.Close] they
// fail with net.ErrClosed.
type Job interface {
	// Rank is this rank, Size the number of ranks.
	Rank() int
	Size() int
	// AllGather gives every rank what every rank gave, in the order of ranks; lengths may differ. All ranks make the same
	// all-gathers and barriers in the same order. When ctx ends only the wait does: this rank's part has been given, the others
	// get it, and the next call is the next all-gather.
	AllGather(ctx context.Context, mine []byte) ([][]byte, error)
	// Barrier returns when all ranks have called it.
	Barrier(ctx context.Context) error
	// Send gives b to another rank, or this one, under a tag, and returns when that rank has it, though it may not have asked for
	// it. b may be reused then. Messages of one goroutine to one rank keep their order.
	Send(ctx context.Context, to int, tag uint32, b []byte) error
	// Recv takes the next message of a rank with a tag.
	Recv(ctx context.Context, from int, tag uint32) ([]byte, error)
	// TryRecv is Recv that does not wait: false, nil if there is none yet.
	TryRecv(from int, tag uint32) ([]byte, bool, error)
	// Done is closed when a rank has failed, this one is closed, or Abort was called; Err then says which.
	Done() <-chan struct{}
	Err() error
	// Addr is where a rank is reached, for messages; "" if that is not known.
	Addr(rank int) string
	// Abort tells all ranks that this one cannot go on, and why; all waits of all ranks fail. It does not wait.
	Abort(reason error)
	// Close leaves the job. Other ranks are told; what they already have of this rank they keep. A second call is nil.
	Close() error
}

// errNoReason stands for a reason that was nil.
var errNoReason = errors.New("no reason was given")

func orNoReason(reason error) error {
	if reason == nil {
		return errNoReason
	}
	return reason
}

// Causes, for errors.Is.
var (
	// ErrDied says that a rank's process or host is gone: its connection ended without a goodbye.
	ErrDied = errors.New("the connection ended without a goodbye: the process or its host is gone")
	// ErrAborted says that a rank has called Abort.
	ErrAborted = errors.New("the rank has given up")
	// ErrLeft says that a rank has closed its end of the job.
	ErrLeft = errors.New("the rank has left the job")
	// ErrMissing says that ranks have not come to the meeting in time.
	ErrMissing = errors.New("ranks have not come")
	// ErrNoRoot says that nobody answers where the ranks meet, or that the root has ended without an answer.
	ErrNoRoot = errors.New("the root is not there: its process or host is gone, or was never started")
	// ErrProtocol says that a peer sent what this protocol does not allow.
	ErrProtocol = errors.New("not the bootstrap's protocol")
	// ErrTooLong says that a message or slice is longer than the limit.
	ErrTooLong = errors.New("longer than the limit")
	// ErrTooMany says that too much has been sent that nobody has asked for, or too many all-gathers are under way.
	ErrTooMany = errors.New("too many at a time")
)

// RankError is a failure that concerns another rank.
type RankError struct {
	Op   string // what was being done here, "" when it is a failure of the job as a whole
	Rank int
	Addr string // of that rank; "" where it is not known
	Err  error
}

func (e *RankError) Error() string {
	s := "bootstrap: "
	if e.Op != "" {
		s += e.Op + ": "
	}
	s += fmt.Sprintf("rank %d", e.Rank)
	if e.Addr != "" {
		s += " at " + e.Addr
	}
	return s + ": " + e.Err.Error()
}

// Unwrap is the cause.
func (e *RankError) Unwrap() error { return e.Err }

// Limits bound what peers can make this rank hold. Zero fields mean the default, negative ones are an error; all ranks should have the same.
type Limits struct {
	Message int // bytes of one message, 4 MiB
	Slice   int // bytes that one rank gives to an all-gather, 64 KiB
	Queued  int // bytes of messages that wait to be asked for, 64 MiB
	Pending int // accepted connections that have not yet shown a message, 1024
}

func (l Limits) orDefaults() Limits {
	def := func(v *int, n int) {
		if *v == 0 {
			*v = n
		}
	}
	def(&l.Message, 4<<20)
	def(&l.Slice, 64<<10)
	def(&l.Queued, 64<<20)
	def(&l.Pending, 1024)
	return l
}
