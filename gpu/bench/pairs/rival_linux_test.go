package main

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/socketboot/bootstrap"
)

// endedJob is a job that ends when it is closed.
type endedJob chan struct{}

func (j endedJob) Done() <-chan struct{} { return j }
func (j endedJob) Err() error            { return errors.New("rank 1 has died") }

// A call into NCCL that does not end is left after its time, or when the job ends.
func TestNCCLWaitsForEver(t *testing.T) {
	failed := errors.New("it failed")
	for name, c := range map[string]struct {
		call   func(never <-chan struct{}) error
		over   bool
		stuck  bool
		took   time.Duration
		expect string
	}{
		"ends":      {call: func(<-chan struct{}) error { time.Sleep(time.Minute); return nil }, took: time.Minute},
		"fails":     {call: func(<-chan struct{}) error { return failed }, expect: failed.Error()},
		"does not":  {call: func(never <-chan struct{}) error { <-never; return nil }, stuck: true, took: time.Hour, expect: "init has not ended after 1h0m0s"},
		"job ended": {call: func(never <-chan struct{}) error { <-never; return nil }, over: true, stuck: true, expect: "rank 1 has died"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				never, job, start := make(chan struct{}), make(endedJob), time.Now()
				if c.over {
					close(job)
				}
				err := endsWithin(time.Hour, job, "init", func() error { return c.call(never) })
				if took := time.Since(start); took != c.took || errors.Is(err, errStuck) != c.stuck {
					t.Errorf("%v after %v", err, took)
				}
				if (err == nil) != (c.expect == "") || err != nil && !strings.Contains(err.Error(), c.expect) {
					t.Error(err)
				}
				close(never)
			})
		})
	}
}

// A sample by NCCL that does not end is left likewise; one that ends has the time that it took itself, not that until it was asked for.
func TestSampleWaitsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never, job := make(chan struct{}), make(endedJob)
		took, err := timedWithin(time.Hour, job, "send", func() (time.Duration, error) { time.Sleep(time.Minute); return time.Second, nil })
		if took != time.Second || err != nil {
			t.Errorf("%v, %v", took, err)
		}
		r := &rank{job: diedJob{Job: bootstrap.InMemory(1, nil)[0]}}
		stuck := trial{byNCCL: true, send: func(func() error) error { <-never; return nil }}
		if _, err := r.sample(0, 1, stuck); !errors.Is(err, errStuck) || !strings.Contains(err.Error(), "cuStreamSynchronize has not ended") {
			t.Errorf("a rank has died: %v", err)
		}
		failed := errors.New("it failed")
		if _, err := timedWithin(time.Hour, job, "send", func() (time.Duration, error) { return 0, failed }); !errors.Is(err, failed) {
			t.Error(err)
		}
		close(never)
	})
}

// diedJob is a job of which another rank has died.
type diedJob struct{ bootstrap.Job }

func (diedJob) Done() <-chan struct{} { d := make(chan struct{}); close(d); return d }
func (diedJob) Err() error            { return errors.New("rank 1 has died") }
