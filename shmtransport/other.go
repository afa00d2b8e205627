//go:build !linux

package shmtransport

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/transport/driver"
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

// Config of a Transport, which is for Linux.
type Config struct {
	Addr, Dir string
	GPU       gpu.Context
}

// Transport is for Linux.
type Transport struct{}

var _ driver.Transport = (*Transport)(nil)

// New makes a transport that can connect nobody.
func New(Config) *Transport { return &Transport{} }

// Name is NCCL's.
func (*Transport) Name() string { return "SHM" }

// Describe has nothing to tell.
func (*Transport) Describe(*driver.PeerInfo) error { return nil }

// Close does nothing.
func (*Transport) Close() error { return nil }

// CanConnect says no.
func (*Transport) CanConnect(_, _ *driver.PeerInfo) driver.Verdict {
	return driver.Verdict{Reason: errLinux.Error()}
}

// Setup fails.
func (*Transport) Setup(driver.Request, *driver.Blob) (driver.Connector, error) { return nil, errLinux }
