package socketboot

import (
	"fmt"
	"syscall"
	"time"
)

// Check is EINVAL with the first field that is negative where that means nothing. All that is made of a Net does it first.
func (n Net) Check() error {
	if err := n.Deadlines.check("Net.Deadlines."); err != nil {
		return err
	}
	if n.MaxPending < 0 {
		return fmt.Errorf("socketboot: Net.MaxPending is %d, want 0, which means 1024, or more: %w", n.MaxPending, syscall.EINVAL)
	}
	return notNegative("Net.Retry.", duration{"Unit", n.Retry.Unit}, duration{"Each", n.Retry.Each})
}

// check names the fields by what they are part of.
func (d Deadlines) check(of string) error {
	return notNegative(of, duration{"Hello", d.Hello}, duration{"Step", d.Step}, duration{"Total", d.Total})
}

type duration struct {
	field string
	d     time.Duration
}

func notNegative(of string, ds ...duration) error {
	for _, x := range ds {
		if x.d < 0 {
			return fmt.Errorf("socketboot: %s%s is %v, want 0, which means the default, or more: %w", of, x.field, x.d, syscall.EINVAL)
		}
	}
	return nil
}
