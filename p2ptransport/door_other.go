//go:build !linux

package p2ptransport

import (
	"errors"
	"log/slog"
	"net"
)

type door struct{}

var errNoDoor = errors.New("GPU memory is shared between processes on Linux only")

func openDoor(*slog.Logger) (*door, error) { return nil, errNoDoor }

func (*door) admit(*piece) (string, error) { return "", errNoDoor }
func (*door) dismiss(*piece)               {}
func (*door) close() error                 { return nil }

type fetch struct{}

func startFetch(*offer) *fetch { return &fetch{} }

func (*fetch) result() (int, *net.UnixConn, bool, error) { return -1, nil, true, errNoDoor }
func (*fetch) drop() error                               { return nil }

type life struct{}

func watch(*net.UnixConn) *life { return &life{} }

func (*life) ended() error { return nil }
func (*life) close() error { return nil }
