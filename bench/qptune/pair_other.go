//go:build !unix

package main

import (
	"errors"
	"io"
	"net"

	"github.com/purerdma/purerdma/bench/tune"
)

func endOfPair() bool { return false }

func serveParent() int { return 2 }

func startPair(tune.EndConfig, bool, io.Writer) (net.Conn, func() error, error) {
	return nil, nil, errors.New("two ends on one machine need a Unix; use --server and --connect")
}
