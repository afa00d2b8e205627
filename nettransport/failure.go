package nettransport

import (
	"errors"
	"fmt"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/socketboot"
)

// fault is an asynchronous event that ends a connection.
type fault struct {
	dev    *device
	object any // *ibverbs.QP, *ibverbs.CQ or nil
	err    error
}

// fail ends the connection with its one error, which it returns. What has succeeded by now still counts: the queues are emptied
// first. Then the queue pairs go to the error state, so that the peer's requests and ours end.
func (c *Comm) fail(err error) error {
	if c.err != nil {
		return c.err
	}
	c.end(err)
	for i := range c.rails {
		for range c.rails[i].cq.Depth() {
			if !c.pollRail(i) {
				break
			}
		}
	}
	for i := range c.lanes {
		// One that cannot be moved is of no use either way.
		_ = c.lanes[i].qp.Modify(&ibverbs.QPAttr{State: ibverbs.StateErr}, ibverbs.QPStateMask)
	}
	return c.err
}

// op is what the connection does, for errors.
func (c *Comm) op() string {
	if c.receives {
		return "receive"
	}
	return "send"
}

// laneOf is the lane with a queue pair of this number on a rail, nil for the flush queue pair.
func (c *Comm) laneOf(rail int, qpn uint32) *lane {
	for i := range c.lanes {
		if l := &c.lanes[i]; l.rail == rail && l.qp.Num() == qpn {
			return l
		}
	}
	return nil
}

// errorOn is an error of a queue pair: it names both ends of it.
func (c *Comm) errorOn(rail int, qpn uint32, err error) *ibverbs.Error {
	p := c.rails[rail].port
	e := &ibverbs.Error{Op: c.op(), Device: p.String(), Object: fmt.Sprintf("QP %#x", qpn), Peer: c.peerName(), Err: err}
	if l := c.laneOf(rail, qpn); l != nil {
		path := l.qp.Path()
		e.Object = fmt.Sprintf("QP %#x at GID %v", qpn, path.Local)
		e.Peer += fmt.Sprintf(", QP %#x at GID %v", path.RemoteQPN, path.Remote)
	}
	if news := p.dev.newsOf(p.num); news != "" {
		e.Hint = "the port had " + news
	}
	return e
}

// hint adds what to do to what is known of the port.
func hint(e *ibverbs.Error, what string) error {
	if e.Hint != "" {
		what = e.Hint + "; " + what
	}
	e.Hint = what
	return e
}

// completionError is what a completion that failed means.
func (c *Comm) completionError(rail int, wc *ibverbs.WC) error {
	e := c.errorOn(rail, wc.QPN, &ibverbs.CompletionError{Status: wc.Status, VendorErr: wc.VendorErr, QPN: wc.QPN, ID: wc.ID})
	if wc.Status == ibverbs.RetryExcErr {
		return hint(e, "test the path between the two GIDs with ping and ib_write_bw -x; raise the time-out (NCCL_IB_TIMEOUT, qp.WithTimeout) only if the network is slow to recover")
	}
	return e
}

// protocolError is for what a peer told or did.
func (c *Comm) protocolError(rail int, qpn uint32, err error) error {
	e := c.errorOn(rail, qpn, err)
	var d *disagreement
	if errors.As(err, &d) {
		return hint(e, "set the same NCCL_IB_QPS_PER_CONNECTION, NCCL_IB_SPLIT_DATA_ON_QPS and NCCL_IB_AR_THRESHOLD at both ends (Config.QPsPerConn, Split, ARThreshold)")
	}
	return e
}

func errNoKey(group uint64, i, dev int) error {
	return fmt.Errorf("%w: buffer %d that it offers for message %d has no remote key for its device %d", ErrProtocol, i, group, dev)
}

// postError is for a queue pair that refused a request.
func (c *Comm) postError(l *lane, err error) error {
	return c.errorOn(l.rail, l.qp.Num(), err)
}

// pollError leaves the errors of this package as they are.
func (c *Comm) pollError(rail int, err error) error {
	var e *ibverbs.Error
	if errors.As(err, &e) && e.Peer != "" {
		return err
	}
	p := c.rails[rail].port
	return &ibverbs.Error{Op: c.op(), Device: p.String(), Object: "completion queue", Peer: c.peerName(), Err: err}
}

func (c *Comm) goneError() error {
	why := ErrPeerGone
	if err := c.conn.Err(); err != nil && !errors.Is(err, socketboot.ErrPeerClosed) {
		why = fmt.Errorf("%w: %w", ErrPeerGone, err)
	}
	l := &c.lanes[0]
	e := c.errorOn(l.rail, l.qp.Num(), why)
	return hint(e, "look at the peer's own log for why it ended")
}

func (c *Comm) noProgressError(limit time.Duration) error {
	l := &c.lanes[0]
	e := c.errorOn(l.rail, l.qp.Num(), fmt.Errorf("%w for %v", ErrNoProgress, limit))
	return hint(e, "the peer's process lives: it is stuck, or the path between the two GIDs does not work")
}

// faultError is for an asynchronous event.
func (c *Comm) faultError(f *fault) error {
	for i := range c.lanes {
		if l := &c.lanes[i]; f.object == any(l.qp.QP) {
			return c.errorOn(l.rail, l.qp.Num(), f.err)
		}
	}
	return &ibverbs.Error{Op: c.op(), Device: f.dev.name, Peer: c.peerName(), Err: f.err}
}
