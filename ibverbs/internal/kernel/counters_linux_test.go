package kernel

import (
	"errors"
	"io/fs"
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

func TestCounters(t *testing.T) {
	const dir = "devices/virtual/infiniband/rxe0/ports/1/hw_counters/"
	_, w := testWorld()
	m := testSys()
	w.Sys = m
	c, err := deviceOf(t, w, "rxe0", plain{id: uapi.DriverRXE}).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	r := c.(driver.CounterReader)
	var not *driver.NotSupportedError
	if _, err := r.Counters(1); !errors.As(err, &not) || not.Feature != driver.FeatureCounters {
		t.Errorf("a device without: %v", err)
	}
	for name, text := range map[string]string{"rcvd_pkts": "18446744073709551615", "sent_pkts": "7", "lifespan": "12"} {
		m[dir+name] = file(text)
	}
	want := []driver.Counter{{Name: "rcvd_pkts", Value: 1<<64 - 1}, {Name: "sent_pkts", Value: 7}}
	if got, err := r.Counters(1); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := r.Counters(2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a port that is not there: %v", err)
	}
	m[dir+"sent_pkts"] = &fstest.MapFile{Data: []byte("many")}
	if got, err := r.Counters(1); err == nil {
		t.Errorf("a counter that is no number: %+v", got)
	}
}
