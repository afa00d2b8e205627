package p2ptransport

import "errors"

// ErrPeerGone says that the process of the peer has ended without closing the connection. What its memory held is unknown.
var ErrPeerGone = errors.New("the peer's process has ended")
