package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/purerdma/purerdma/bench/pair"
	"github.com/purerdma/purerdma/bench/tune"
)

// orders is what the other end on this machine cannot be told on the control connection, since it is its own.
type orders struct {
	Device   string
	Port     int
	GIDIndex int
	Verbose  bool
}

// startPair starts the other end. done ends it and tells how it went.
func startPair(o orders, stderr io.Writer) (nc net.Conn, done func() error, err error) {
	nc, wait, err := pair.Start(o, stderr)
	if err != nil {
		return nil, nil, err
	}
	return nc, func() error {
		_ = nc.Close() // the sweep has closed it before, if it got that far
		return wait()
	}, nil
}

// second is the other end. What goes wrong it tells on the control connection, so that it is reported once.
func second() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o orders
	nc, err := pair.Join(&o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	log := logger(os.Stderr, o.Verbose)
	if _, err := tune.Serve(ctx, nc, tune.EndConfig{Device: o.Device, Port: o.Port, GIDIndex: o.GIDIndex, Log: log}); err != nil {
		log.Debug("the other end failed", slog.Any("error", err))
		return 1
	}
	return 0
}
