//go:build !linux

package launchtest

import (
	"os"
	"os/exec"
	"testing"
)

func namespaces(testing.TB) []string { return nil }

func run(cmd *exec.Cmd, _ bool) error {
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd.Run()
}
