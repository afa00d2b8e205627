package bootstrap

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/purerdma/purerdma/socketboot"
)

// A negative limit is an error that names it, also in a job of one rank; it is not the default.
func TestNegativeLimits(t *testing.T) {
	for field, c := range map[string]Config{
		"Config.Timeout":        {Timeout: -1},
		"Config.Limits.Message": {Limits: Limits{Message: -1}},
		"Config.Limits.Slice":   {Limits: Limits{Slice: -1}},
		"Config.Limits.Queued":  {Limits: Limits{Queued: -1}},
		"Config.Limits.Pending": {Limits: Limits{Pending: -1}},
		"Net.Retry.Unit":        {Net: socketboot.Net{Retry: socketboot.Retry{Unit: -1}}},
	} {
		c.Size = 1
		if _, err := Join(t.Context(), c); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), field+" is -1") {
			t.Errorf("%s: %v", field, err)
		}
	}
	for field, c := range map[string]RootConfig{
		"RootConfig.Timeout":  {Timeout: -1},
		"Net.Deadlines.Total": {Net: socketboot.Net{Deadlines: socketboot.Deadlines{Total: -1}}},
	} {
		if _, err := NewRoot(t.Context(), c); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), field+" is -1") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
