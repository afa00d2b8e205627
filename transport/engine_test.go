package transport

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/purerdma/purerdma/transport/driver"
)

// counter is a Proxy whose operations take a number of rounds.
type counter struct {
	ops    []int
	idle   int // rounds in which nothing moves before one in which something does
	waited int
	fail   error
	refuse error
}

func (c *counter) Start(op driver.Op) error {
	if c.refuse != nil {
		return c.refuse
	}
	c.ops = append(c.ops, op.Steps)
	return nil
}
func (c *counter) Pending() int { return len(c.ops) }
func (c *counter) Progress() (bool, error) {
	if c.fail != nil {
		return true, c.fail
	}
	if c.waited++; c.waited%(c.idle+1) != 0 || len(c.ops) == 0 {
		return true, nil
	}
	if c.ops[0]--; c.ops[0] == 0 {
		c.ops = c.ops[1:]
	}
	return false, nil
}

func TestEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEngine()
		defer e.Close()
		ends := make(chan string, 10)
		tell := func(name string) func(error) {
			return func(err error) {
				if err != nil {
					name += ": " + err.Error()
				}
				ends <- name
			}
		}
		fast, slow := &counter{}, &counter{idle: 200}
		e.Start(slow, Op{Steps: 3}, tell("slow"))
		e.Start(fast, Op{Steps: 1}, tell("fast 1"))
		e.Start(fast, Op{Steps: 2}, tell("fast 2"))
		for _, want := range []string{"fast 1", "fast 2", "slow"} {
			if got := <-ends; got != want {
				t.Errorf("%s ended, want %s", got, want)
			}
		}
		e.Start(fast, Op{Steps: 1}, tell("again"))
		if got := <-ends; got != "again" {
			t.Error(got)
		}
		e.Start(&counter{refuse: errors.New("no")}, Op{Steps: 1}, tell("refused"))
		if got := <-ends; got != "refused: no" {
			t.Error(got)
		}
		e.Start(&counter{fail: errors.New("broken")}, Op{Steps: 1}, tell("failed"))
		if got := <-ends; got != "failed: broken" {
			t.Error(got)
		}
		never := &counter{idle: 1 << 40}
		e.Start(never, Op{Steps: 1}, tell("dropped"))
		e.Drop(never)
		if got := <-ends; got != "dropped: transport: engine: "+errDropped.Error() {
			t.Error(got)
		}
		e.Drop(fast)
		e.Start(never, Op{Steps: 1}, tell("closed"))
		_ = e.Close()
		_ = e.Close()
		if got := <-ends; got != "closed: transport: engine: "+ErrClosed.Error() {
			t.Error(got)
		}
		e.Start(fast, Op{Steps: 1}, tell("late"))
		if got := <-ends; got != "late: transport: engine: "+ErrClosed.Error() {
			t.Error(got)
		}
		e.Drop(fast)
	})
}
