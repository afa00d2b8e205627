//go:build !hw

package main

import (
	"os"
	"testing"

	"github.com/purerdma/purerdma/bench/pair"
	"github.com/purerdma/purerdma/internal/leaktest"
)

// TestMain is the second process too.
func TestMain(m *testing.M) {
	if pair.Second() && os.Getenv(messagesVariable) != "" {
		os.Exit(messagesSecond())
	}
	if pair.Second() {
		os.Exit(second())
	}
	leaktest.Main(m)
}
