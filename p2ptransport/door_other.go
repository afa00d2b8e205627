//go:build !linux

package p2ptransport

import (
	"errors"
	"log/slog"
)

type door struct{}

var errNoDoor = errors.New("descriptors of GPU memory are passed on Linux only")

func openDoor(*slog.Logger) (*door, error) { return nil, errNoDoor }

func (*door) admit(*piece) (string, error) { return "", errNoDoor }
func (*door) dismiss(*piece)               {}
func (*door) close() error                 { return nil }

type fetch struct{}

func startFetch(string, uint64) *fetch { return &fetch{} }

func (*fetch) result() (int, bool, error) { return -1, false, errNoDoor }
func (*fetch) drop() error                { return nil }
