package qp

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/cause"
)

// Connect is ConnectContext that nothing ends but success or failure. With the
// default retries a peer whose address does not resolve takes about a minute
// and a half.
func (q *QP) Connect(peer Info) error { return q.ConnectContext(context.Background(), peer) }

// ConnectContext checks what the peer told and brings q from INIT over RTR to
// RTS. The change to RTR may sit in the kernel for about a second while the
// peer's address is resolved, and ctx cannot shorten that; it ends the waits
// between the tries. After an error q can only be closed, except that a change
// to RTR that failed leaves it in INIT, from where it may be tried again.
func (q *QP) ConnectContext(ctx context.Context, peer Info) error {
	const op = "connect QP"
	if s := q.State(); s != ibverbs.StateInit {
		if _, err := q.Query(); errors.Is(err, ibverbs.ErrClosed) {
			return q.fail(op, ibverbs.ErrClosed, "")
		}
		return q.fail(op, fmt.Errorf("QP is in %v: %w", s, ibverbs.ErrBadState), "")
	}
	if err := q.checkPeer(&peer); err != nil {
		e := q.fail(op, err, "")
		e.Peer = peerName(&peer)
		return e
	}
	rtr := q.rtr(&peer)
	if err := q.toRTR(ctx, &rtr); err != nil {
		return q.explain(err, &peer)
	}
	p := &q.params
	if err := q.Modify(&ibverbs.QPAttr{State: ibverbs.StateRTS, SQPSN: p.SendPSN, Timeout: p.Timeout, RetryCnt: p.Retry,
		RNRRetry: p.RNRRetry, MaxRdAtomic: p.MaxRdAtomic},
		ibverbs.QPStateMask|ibverbs.QPSQPSN|ibverbs.QPTimeout|ibverbs.QPRetryCnt|ibverbs.QPRNRRetry|ibverbs.QPMaxQPRdAtomic); err != nil {
		return q.explain(err, &peer)
	}
	q.path = q.pathTo(&peer, &rtr)
	return nil
}

// errPeerInfo is wrapped by what Connect says about a peer's Info.
var errPeerInfo = errors.New("the peer told what cannot be")

// checkPeer refuses what an Info cannot be, or what cannot be connected to q.
func (q *QP) checkPeer(peer *Info) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %w", errPeerInfo, fmt.Sprintf(format, args...), syscall.EINVAL)
	}
	switch {
	case peer.QPN < 2 || peer.QPN > maxQPN:
		return bad("QP number %#x; 2 to 24 bits are possible", peer.QPN)
	case peer.PSN > maxPSN:
		return bad("packet sequence number %#x of more than 24 bits", peer.PSN)
	case !peer.MTU.Valid():
		return bad("MTU code %d; 1 to 5 are possible", uint8(peer.MTU))
	case peer.LinkLayer != q.port.LinkLayer:
		return bad("its link layer is %v, this port's is %v", peer.LinkLayer, q.port.LinkLayer)
	}
	if q.port.LinkLayer == ibverbs.LinkInfiniBand {
		if peer.LID == 0 || peer.LID >= firstMulticastLID {
			return bad("LID %#x; 1 to %#x are possible", peer.LID, firstMulticastLID-1)
		}
		return nil
	}
	addr := peer.GID.Addr()
	switch {
	case peer.GID.IsZero(), addr.IsUnspecified():
		return bad("GID is empty")
	case addr.IsMulticast():
		return bad("GID %v is that of a group", addr)
	case familyOf(peer.GID) != familyOf(q.choice.GID):
		return bad("its GID %v is %v, ours, %v, is not", addr, familyOf(peer.GID), q.choice.GID.Addr())
	}
	return nil
}

const firstMulticastLID = 0xc000

// rtrMask is the attributes of the change to RTR.
const rtrMask = ibverbs.QPStateMask | ibverbs.QPAV | ibverbs.QPPathMTU | ibverbs.QPDestQPN | ibverbs.QPRQPSN |
	ibverbs.QPMaxDestRdAtomic | ibverbs.QPMinRNRTimer

func (q *QP) rtr(peer *Info) ibverbs.QPAttr {
	return ibverbs.QPAttr{State: ibverbs.StateRTR, PathMTU: min(peer.MTU, q.mtu()), DestQPN: peer.QPN, RQPSN: peer.PSN,
		MaxDestRdAtomic: q.params.MaxDestRdAtomic, MinRNRTimer: q.params.MinRNR, AH: q.addressOf(peer)}
}

// addressOf is the way to the peer. On InfiniBand the GID counts only between
// subnets, where the LID is that of the way to the router, taken from the
// peer's GID if it has one.
func (q *QP) addressOf(peer *Info) ibverbs.AHAttr {
	p := &q.params
	ah := ibverbs.AHAttr{SL: p.ServiceLevel, Port: p.Port}
	infiniband := q.port.LinkLayer == ibverbs.LinkInfiniBand
	if infiniband {
		ah.DLID = peer.LID
		if sameSubnet(q.choice.GID, peer.GID) {
			return ah
		}
		if l := flid(peer.GID); l != 0 {
			ah.DLID = l
		}
	}
	ah.IsGlobal, ah.DGID, ah.SGIDIndex, ah.HopLimit = true, peer.GID, q.choice.Index, p.HopLimit
	ah.FlowLabel = p.FlowLabel
	if !infiniband {
		ah.TrafficClass = p.TrafficClass
	}
	return ah
}

// sameSubnet compares the low 16 bits of the subnet prefixes, as NCCL does: the
// bits above may hold an FLID.
func sameSubnet(a, b ibverbs.GID) bool { return a[6] == b[6] && a[7] == b[7] }

// toRTR tries again while the peer's address does not resolve.
func (q *QP) toRTR(ctx context.Context, a *ibverbs.QPAttr) error {
	for n := 0; ; n++ {
		if err := cause.Of(ctx); err != nil {
			return q.fail("modify QP to RTR", err, "")
		}
		err := q.Modify(a, rtrMask)
		if err == nil || !errors.Is(err, syscall.ETIMEDOUT) || n >= q.params.RTRRetries {
			return err
		}
		wait := time.NewTimer(time.Duration(n+1) * q.params.RTRRetryWait)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return q.fail("modify QP to RTR", fmt.Errorf("%w, after %d tries: %w", cause.Of(ctx), n+1, err), "")
		}
	}
}

// explain adds the peer and what to do.
func (q *QP) explain(err error, peer *Info) error {
	e, ok := err.(*ibverbs.Error)
	if !ok {
		return err
	}
	e.Peer = peerName(peer)
	if e.Hint != "" {
		return e
	}
	ours := q.choice.GID.Addr()
	switch {
	case errors.Is(err, syscall.ETIMEDOUT):
		e.Hint = fmt.Sprintf("no route from %v to the peer's address, or nobody answers for it (ARP, ND); GID here: %s", ours, q.choice.Reason)
	case errors.Is(err, syscall.ENODEV):
		e.Hint = fmt.Sprintf("the net device of %v lives in another network namespace, or is gone", ours)
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		e.Hint = fmt.Sprintf("no route from %v to the peer's address; GID here: %s", ours, q.choice.Reason)
	}
	return e
}

func peerName(peer *Info) string {
	if peer.LinkLayer == ibverbs.LinkInfiniBand {
		return fmt.Sprintf("QP %#x at LID %d", peer.QPN, peer.LID)
	}
	return fmt.Sprintf("QP %#x at %v", peer.QPN, peer.GID.Addr())
}

func (q *QP) pathTo(peer *Info, rtr *ibverbs.QPAttr) Path {
	p := Path{Device: q.pd.Info().Name, Port: q.params.Port, GIDIndex: q.choice.Index, Local: q.choice.GID, Remote: peer.GID,
		LocalQPN: q.Num(), RemoteQPN: peer.QPN, FlowLabel: rtr.AH.FlowLabel, TrafficClass: rtr.AH.TrafficClass,
		ServiceLevel: rtr.AH.SL, MTU: rtr.PathMTU}
	if q.choice.Type == ibverbs.GIDTypeRoCEv2 {
		p.UDPSourcePort = UDPSourcePort(p.FlowLabel, p.LocalQPN, p.RemoteQPN)
	}
	return p
}
