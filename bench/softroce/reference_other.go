//go:build !linux

package main

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// reference needs Linux: segmentation by the kernel is what it measures.
type reference struct{}

func newReference(netip.Addr) (*reference, error) {
	return nil, errors.New("the reference needs Linux's UDP_SEGMENT and UDP_GRO")
}

func (*reference) ports() ports        { return ports{} }
func (*reference) connect(ports) error { return errors.ErrUnsupported }
func (*reference) Close() error        { return nil }
func (*reference) byPolling() way      { return way{} }
func (*reference) byWaiting() way      { return way{} }

func (*reference) stream(context.Context, int, bool, time.Duration) (float64, error) {
	return 0, errors.ErrUnsupported
}

func (*reference) sink(context.Context, int, bool) error { return errors.ErrUnsupported }
