package nettransport

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/qp"
)

// Attributes with which a connection would be made and then not work are refused by New, by the option's name.
func TestUnfitAttributes(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	each := func(at int, o qp.Option) func(int) []qp.Option {
		return func(q int) []qp.Option {
			if q == at {
				return []qp.Option{o}
			}
			return nil
		}
	}
	psn := func(p *qp.Params) { p.SendPSN = 7 }
	for _, tt := range []struct {
		name   string
		c      Config
		words  string
		accept bool
	}{
		{"PSN", Config{QP: []qp.Option{psn}}, "Config.QP PSN", false},
		{"receiver's PSN", Config{RecvQP: []qp.Option{psn}}, "Config.RecvQP PSN", false},
		{"one queue pair's PSN", Config{EachQP: each(9, psn)}, "Config.EachQP pair 9 PSN", false},
		{"depths", Config{QP: []qp.Option{qp.WithDepth(sendDepth-1, recvDepth)}}, "Config.QP depths", false},
		{"receive depth", Config{QP: []qp.Option{qp.WithDepth(sendDepth, recvDepth-1)}}, "Config.QP depths", false},
		{"no entries", Config{QP: []qp.Option{qp.WithSGEs(0)}}, "Config.QP entries", false},
		{"no access", Config{RecvQP: []qp.Option{qp.WithAccess(ibverbs.LocalWrite)}}, "Config.RecvQP RemoteWrite", false},
		{"inline", Config{Inline: true, QP: []qp.Option{qp.WithInline(inline - 1)}}, "Config.QP inline", false},
		{"port", Config{EachQP: each(0, qp.WithPort(2))}, "Config.EachQP port", false},
		{"small inline, not used", Config{QP: []qp.Option{qp.WithInline(0)}}, "", true},
		{"deeper", Config{QP: []qp.Option{qp.WithDepth(2*sendDepth, 2*recvDepth)}}, "", true},
		{"traffic class", Config{RecvQP: []qp.Option{qp.WithTrafficClass(4)}}, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.c.Find = []ibverbs.Option{ibverbs.WithDrivers(f.send)}
			tr, err := New(tt.c)
			if err == nil {
				defer tr.Close()
			}
			if (err == nil) != tt.accept {
				t.Fatalf("New: %v", err)
			}
			for word := range strings.FieldsSeq(tt.words) {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
		})
	}
}

// A listener that is closed says so in the words of this package and of package net.
func TestAcceptAfterClose(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	tr := transport(t, f.send, Config{})
	l, err := tr.Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = l.Accept(t.Context())
	_, tryErr := l.TryAccept()
	for _, err := range []error{err, tryErr} {
		if !errors.Is(err, ErrClosed) || !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v, want ErrClosed and net.ErrClosed", err)
		}
	}
}

// What ends a context is found in the error, and so is the reason that a caller gave.
func TestContextCause(t *testing.T) {
	f := newFabric(t, 1, 1, memdriver.Config{}, nil)
	p := connect(t, f, Config{}, Config{})
	rm, _ := memory(t, &p.recv.Comm, 4096)
	r := begun(t)(p.recv.Irecv(Buffer{MR: rm, N: 8}))
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	l, err := transport(t, f.recv, Config{}).Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = l.Accept(ctx)
	for _, err := range []error{err, r.Wait(ctx, nil)} {
		if !errors.Is(err, reason) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want Canceled and its cause", err)
		}
	}
}
