package fifo

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs"
)

var (
	// ErrPeer is wrapped by every error about what a peer wrote or told. The
	// connection is of no use any more.
	ErrPeer = errors.New("the peer broke the protocol")
	// ErrClosed says that the ring is closed; it is that of ibverbs.
	ErrClosed = ibverbs.ErrClosed
)

func errLayout(l Layout) error {
	return fmt.Errorf("fifo: no such layout: %v: %w", l, syscall.EINVAL)
}

func errCount(n int) error {
	return fmt.Errorf("fifo: a row is of 1 to %d buffers, not %d, and their sizes: %w", MaxRecvs, n, syscall.EINVAL)
}

func errAhead(k, idx uint64) error {
	return fmt.Errorf("%w: offers are at message %d in the row of message %d, which was not used", ErrPeer, idx-1, k)
}

func errGroup(k uint64, n uint32) error {
	return fmt.Errorf("%w: it offers %d buffers for message %d, where 1 to %d can be", ErrPeer, n, k, MaxRecvs)
}

func errOffer(k uint64, i int, what string) error {
	return fmt.Errorf("%w: buffer %d that it offers for message %d %s", ErrPeer, i, k, what)
}

func errSize(k uint64, i, size, limit int) error {
	return fmt.Errorf("%w: size %d of buffer %d of message %d is not within 0 to %d", ErrPeer, size, i, k, limit)
}

func errOwnOffer(i int, what string) error {
	return fmt.Errorf("fifo: buffer %d to offer %s: %w", i, what, syscall.EINVAL)
}

func errOwnSize(i, size int) error {
	return fmt.Errorf("fifo: size %d of message %d of a group is not within 0 to %d: %w", size, i, MaxSize, syscall.EINVAL)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
