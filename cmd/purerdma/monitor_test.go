package main

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

func TestRisen(t *testing.T) {
	cs := []ibverbs.Counter{{Name: "a", Value: 5}, {Name: "b", Value: 2}, {Name: "c", Value: 1}, {Name: "new", Value: 9}}
	if got := risen(nil, cs); len(got) != 0 {
		t.Errorf("at first %v", got)
	}
	got := risen(map[string]uint64{"a": 3, "b": 2, "c": 7}, cs)
	if !maps.Equal(got, map[string]uint64{"a": 2}) {
		t.Errorf("%v", got)
	}
}

// counted is a device whose counter rises by 3 each time that it is read.
type (
	counted        struct{ driver.Driver }
	countedDevice  struct{ driver.Device }
	countedContext struct {
		driver.Context
		value *uint64
	}
)

func (c counted) Devices() ([]driver.Device, error) {
	ds, err := c.Driver.Devices()
	for i := range ds {
		ds[i] = countedDevice{ds[i]}
	}
	return ds, err
}

func (d countedDevice) Open() (driver.Context, error) {
	c, err := d.Device.Open()
	return countedContext{c, new(uint64)}, err
}

func (c countedContext) Counters(int) ([]driver.Counter, error) {
	*c.value += 3
	return []driver.Counter{{Name: "rcvd_pkts", Value: *c.value}, {Name: "still", Value: 1}}, nil
}

// Each look shows what rose since the one before.
func TestCountersAreLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev, err := ibverbs.Open("mem0", ibverbs.WithDrivers(counted{memdriver.New(memdriver.Config{})}))
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		var text strings.Builder
		tl := &tool{out: cli.IO{Text: &text, Err: &text}}
		tl.doc.Counters = &[]rise{}
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		var mu sync.Mutex
		tl.count(ctx, []*ibverbs.Context{dev}, time.Second, &mu)
		if n := len(*tl.doc.Counters); n != 4 {
			t.Errorf("shown %d times", n)
		}
		for _, r := range *tl.doc.Counters {
			if r.Device != "mem0" || r.Port != 1 || !maps.Equal(r.Rise, map[string]uint64{"rcvd_pkts": 3}) {
				t.Errorf("%+v", r)
			}
		}
		if !strings.Contains(text.String(), "mem0/1       rcvd_pkts +3") {
			t.Errorf("%s", text.String())
		}
	})
}
