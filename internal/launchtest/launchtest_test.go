package launchtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A job that is given up ends, with all that was started for it: nothing holds its standard output any more.
func TestGivenUp(t *testing.T) {
	for _, l := range All {
		t.Run(l.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // of a machine that does other things too
			defer cancel()
			dir := t.TempDir()
			go func() {
				for ctx.Err() == nil {
					if begun, _ := filepath.Glob(filepath.Join(dir, "*")); len(begun) == 2 {
						cancel()
					}
					time.Sleep(5 * time.Millisecond)
				}
			}()
			_, stderr, err := l.Run(ctx, t, 2, nil, "sh", "-c", `mktemp "$0/XXXXXX" && exec sleep 1000`, dir)
			if begun, _ := os.ReadDir(dir); len(begun) != 2 || err == nil || errors.Is(err, exec.ErrWaitDelay) {
				t.Errorf("%d ranks had begun; %v: %s", len(begun), err, stderr)
			}
		})
	}
}
