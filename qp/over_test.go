package qp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

// Both ends return when both are in RTS, and what is said later on the connection is the callers'.
func TestConnectOver(t *testing.T) {
	e := ends(t, memdriver.DeviceConfig{})[0]
	a, b := e.qp(t), e.qp(t)
	left, right := net.Pipe()
	defer left.Close()
	defer right.Close()
	other := make(chan error, 1)
	go func() {
		err := b.ConnectOver(t.Context(), right)
		if err == nil {
			_, err = right.Write([]byte("x"))
		}
		other <- err
	}()
	if err := a.ConnectOver(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	if a.State() != ibverbs.StateRTS || b.State() != ibverbs.StateRTS {
		t.Errorf("the ends are in %v and %v", a.State(), b.State())
	}
	if _, err := io.ReadFull(left, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if err := <-other; err != nil {
		t.Error(err)
	}
}

// A peer that fails, speaks something else, is silent or goes away ends the wait with an error that says which.
func TestConnectOverFails(t *testing.T) {
	info := func(t *testing.T, change func(*Info)) []byte {
		i := ends(t, memdriver.DeviceConfig{})[0].qp(t).Info()
		change(&i)
		b, _ := i.AppendBinary(nil)
		return b
	}
	for _, tt := range []struct {
		name string
		peer func(t *testing.T, c net.Conn, cancel func())
		want error
		says string
	}{
		{"is silent until the context ends", func(_ *testing.T, _ net.Conn, cancel func()) { synctest.Wait(); cancel() }, context.Canceled, "10.0.0.2"},
		{"closes", func(_ *testing.T, c net.Conn, _ func()) { _ = c.Close() }, io.EOF, "exchange of Info"},
		{"speaks HTTP", func(_ *testing.T, c net.Conn, _ func()) { say(c, []byte("GET / HTTP/1.1\r\nHost: 10.0.0.1:4791\r\n")) }, nil, "version 71"},
		{"tells what cannot be", func(t *testing.T, c net.Conn, _ func()) { say(c, info(t, func(i *Info) { i.MTU = 9 })) }, syscall.EINVAL, "MTU code 9"},
		{"fails", func(t *testing.T, c net.Conn, _ func()) { say(c, append(info(t, func(*Info) {}), saysFailed)) }, errPeerFailed, "10.0.0.2"},
		{"dies in the middle", func(t *testing.T, c net.Conn, _ func()) {
			_ = swap(c, info(t, func(*Info) {}), make([]byte, InfoSize))
			_ = c.Close()
		}, io.EOF, "the peer's word"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := ends(t, memdriver.DeviceConfig{})[0].qp(t)
				left, right := net.Pipe()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan struct{})
				go func() { defer close(done); tt.peer(t, right, cancel) }()
				err := q.ConnectOver(ctx, named{left})
				var verbs *ibverbs.Error
				if !errors.As(err, &verbs) || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("got %v, want %v and %q", err, tt.want, tt.says)
				}
				_ = left.Close()
				_ = right.Close()
				<-done
			})
		})
	}
	q := ends(t, memdriver.DeviceConfig{})[0].qp(t)
	if err := q.ConnectOver(t.Context(), nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("without a connection: %v", err)
	}
}

// say writes b while it reads and drops what comes.
func say(c net.Conn, b []byte) {
	go func() { _, _ = io.Copy(io.Discard, c) }()
	_, _ = c.Write(b)
}

// named is a pipe whose other end has an address.
type named struct{ net.Conn }

func (named) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 7} }

// halfDead is a connection whose peer reads nothing and has closed.
type halfDead struct{ net.Conn }

func (halfDead) Read([]byte) (int, error) { return 0, io.EOF }

// What ConnectOver itself ends, its own write, is no part of the error.
func TestConnectOverTellsTheCauseAlone(t *testing.T) {
	left, right := net.Pipe()
	defer left.Close()
	defer right.Close()
	err := ends(t, memdriver.DeviceConfig{})[0].qp(t).ConnectOver(t.Context(), halfDead{left})
	if !errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}
