//go:build hw && linux

package main

import (
	"os"
	"testing"

	"github.com/purerdma/purerdma/bench/pair"
)

// TestMain is the second process too. It counts no descriptors: NVIDIA's driver keeps some until the process ends.
func TestMain(m *testing.M) {
	if pair.Second() && os.Getenv(messagesVariable) != "" {
		os.Exit(messagesSecond())
	}
	if pair.Second() {
		os.Exit(second())
	}
	os.Exit(m.Run())
}
