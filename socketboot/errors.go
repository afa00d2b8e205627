package socketboot

import (
	"errors"
	"fmt"
	"strings"
)

// What can be wrong with a peer, found in a [HandshakeError] by errors.Is.
var (
	// ErrMagic means that the peer is not of this job, or speaks another protocol: a port scanner, an old client of a dead job.
	ErrMagic = errors.New("wrong magic")
	// ErrSocketType means that the magic is right but the peer came for another service of NCCL, such as its socket transport.
	ErrSocketType = errors.New("wrong socket type")
	// ErrField means that a field of the peer's messages is not plausible; errors.As finds the [FieldError].
	ErrField = errors.New("implausible field")
	// ErrSurplus means bytes from the peer when it was not its turn, or after ready.
	ErrSurplus = errors.New("bytes out of turn")
	// ErrDisagree means that each end is right by itself but they do not fit each other.
	ErrDisagree = errors.New("the two ends do not agree")
	// ErrPeerClosed means that the peer closed the connection or died.
	ErrPeerClosed = errors.New("the peer closed the connection")
	// ErrOverload means that a listener dropped this peer because too many handshakes were unfinished.
	ErrOverload = errors.New("too many unfinished handshakes")
)

// FieldError is a field of a message that is not plausible.
type FieldError struct {
	Field string // NCCL's name, "devs[1].mtu"
	Value any
	Want  string // what would be plausible, "1 to 5"
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s is %v, want %s", e.Field, e.Value, e.Want)
}

// Is makes every FieldError an [ErrField].
func (e *FieldError) Is(target error) bool { return target == ErrField }

// HandshakeError is why a handshake failed.
type HandshakeError struct {
	Role      Role   // which end failed it: ours
	State     State  // where it stood
	Peer      string // the peer's address, empty if the machine was fed by hand
	Layout    Layout // ours
	Field     string // the field at fault, empty if none is
	Err       error
	Hint      string   // what to do about it, empty if there is nothing to say
	LooksLike []Layout // layouts other than ours that the peer's bytes fit
}

func (e *HandshakeError) Error() string {
	var b strings.Builder
	b.WriteString("socketboot: handshake")
	if e.Peer != "" {
		b.WriteString(" with " + e.Peer)
	}
	fmt.Fprintf(&b, " as %s in %s: %v", e.Role, e.State, e.Err)
	if len(e.LooksLike) > 0 {
		names := make([]string, len(e.LooksLike))
		for i, l := range e.LooksLike {
			names[i] = l.String()
		}
		fmt.Fprintf(&b, "; the bytes look like NCCL %s, this end speaks %s", strings.Join(names, " or "), e.Layout)
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Unwrap gives what is underneath: one of the sentinels of this package, an error of the owner, of the connection or of a context.
func (e *HandshakeError) Unwrap() error { return e.Err }
