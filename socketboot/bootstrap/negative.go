package bootstrap

import (
	"fmt"
	"syscall"
	"time"
)

func notNegative(field string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("bootstrap: %s is %v, want 0, which means %v, or more: %w", field, d, defaultTimeout, syscall.EINVAL)
	}
	return nil
}

func (l Limits) check() error {
	for _, x := range []struct {
		field string
		n     int
	}{{"Message", l.Message}, {"Slice", l.Slice}, {"Queued", l.Queued}, {"Pending", l.Pending}} {
		if x.n < 0 {
			return fmt.Errorf("bootstrap: Config.Limits.%s is %d, want 0, which means the default, or more: %w", x.field, x.n, syscall.EINVAL)
		}
	}
	return nil
}

// check is what cannot be of a Config, whatever the rank.
func (c *Config) check() error {
	err := notNegative("Config.Timeout", c.Timeout)
	if err == nil {
		err = c.Limits.check()
	}
	if err == nil {
		if err = c.Net.Check(); err != nil {
			err = fmt.Errorf("bootstrap: Config: %w", err)
		}
	}
	return err
}
