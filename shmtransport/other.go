//go:build !linux

package shmtransport

import (
	"context"
	"errors"
	"fmt"
	"net"
)

var errLinux = fmt.Errorf("shared memory between processes needs Linux: %w", errors.ErrUnsupported)

// Listener is for Linux.
type Listener struct{}

// Listen is for Linux.
func Listen(string, ...Option) (*Listener, error) { return nil, errLinux }

// Addr is for Linux.
func (*Listener) Addr() string { return "" }

// Accept is for Linux.
func (*Listener) Accept(context.Context) (*Conn, error) { return nil, errLinux }

// Close is for Linux.
func (*Listener) Close() error { return nil }

// Dial is for Linux.
func Dial(context.Context, string, ...Option) (*Conn, error) { return nil, errLinux }

// Offer is for Linux.
func Offer(context.Context, *net.UnixConn, ...Option) (*Conn, error) { return nil, errLinux }

// Take is for Linux.
func Take(context.Context, *net.UnixConn, ...Option) (*Conn, error) { return nil, errLinux }

// File is for Linux.
type File struct{}

// MakeFile is for Linux.
func MakeFile(string, ...Option) (*File, error) { return nil, errLinux }

// Name is for Linux.
func (*File) Name() string { return "" }

// Attached is for Linux.
func (*File) Attached(context.Context) (*Conn, error) { return nil, errLinux }

// Close is for Linux.
func (*File) Close() error { return nil }

// AttachFile is for Linux.
func AttachFile(string, string) (*Conn, error) { return nil, errLinux }
