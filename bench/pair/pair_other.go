//go:build !unix

package pair

import (
	"errors"
	"io"
	"net"
)

// Second is false: there is no pair here.
func Second() bool { return false }

// Start is an error: it needs a socket pair.
func Start(any, io.Writer) (nc net.Conn, wait func() error, err error) {
	return nil, nil, errors.New("two ends on one machine need a Unix; use one host for each end")
}

// Join is an error.
func Join(any) (net.Conn, error) { return nil, ErrNotPair }
