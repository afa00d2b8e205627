package mlx5model

import (
	"errors"

	"golang.org/x/sys/unix"
)

// eventSocket is an event file: a pair of sockets that keep records apart. The model
// keeps a descriptor of the program's end, by which it can take back what was not read.
type eventSocket struct{ ours, theirs int }

// newEventSocket makes an event file whose reading end is theirs.
func newEventSocket() (*eventSocket, error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &eventSocket{p[0], p[1]}, nil
}

// post implements eventFile. A program that does not read loses events, where the
// kernel would keep them; that is an error here.
func (e *eventSocket) post(record []byte) error {
	return unix.Send(e.ours, record, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// take implements eventFile.
func (e *eventSocket) take() (records [][]byte) {
	for {
		b := make([]byte, 16)
		n, _, err := unix.Recvfrom(e.theirs, b, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return records
		}
		records = append(records, b[:n])
	}
}

// close implements eventFile.
func (e *eventSocket) close() {
	_, _ = unix.Close(e.ours), unix.Close(e.theirs)
}
