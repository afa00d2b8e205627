package kernel

import (
	"errors"
	"io/fs"
	"path"
	"reflect"
	"syscall"
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
	if got, err := r.Counters(1); err == nil || !reflect.DeepEqual(got, want[:1]) {
		t.Errorf("a counter that is no number: %+v, %v", got, err)
	}
}

// A counter that the device refuses to tell is left out, one that cannot be read is told; neither hides another.
func TestCountersThatCannotBeRead(t *testing.T) {
	m, _ := machineOf(connectX("mlx5_0", 1))
	const dir = "devices/pci0000:00/0000:01:00.0/infiniband/mlx5_0/ports/1/"
	m[dir+"counters/port_xmit_data"], m[dir+"counters/symbol_error"] = file("1"), file("2")
	m[dir+"hw_counters/out_of_buffer"], m[dir+"hw_counters/np_cnp_sent"] = file("3"), file("4")
	for _, c := range []struct {
		errno syscall.Errno
		where string
		told  bool
	}{
		{syscall.EINVAL, "symbol_error", false}, {syscall.EOPNOTSUPP, "symbol_error", false}, {syscall.ENODATA, "np_cnp_sent", false},
		{syscall.EIO, "symbol_error", true}, {syscall.EACCES, "np_cnp_sent", true}, {syscall.ENODEV, "np_cnp_sent", true},
		{syscall.EACCES, "hw_counters", true}, {syscall.EIO, "counters", true},
	} {
		k, w := testWorld()
		k.Dev = 231<<8 | 192
		w.Sys = failingFS{m, func(name string) error {
			if path.Base(name) == c.where {
				return c.errno
			}
			return nil
		}}
		w.Netlink = func(uint16, bool, []byte) ([][]byte, error) { return nil, syscall.EPROTONOSUPPORT }
		dev, err := deviceOf(t, w, "mlx5_0", plain{id: uapi.DriverMLX5}).Open()
		if err != nil {
			t.Fatal(err)
		}
		got, err := dev.(driver.CounterReader).Counters(1)
		left := map[string]uint64{"port_xmit_data": 1, "symbol_error": 2, "out_of_buffer": 3, "np_cnp_sent": 4}
		for name := range left {
			if name == c.where || m[dir+c.where+"/"+name] != nil {
				delete(left, name)
			}
		}
		for _, one := range got {
			if left[one.Name] != one.Value || one.Standard != (one.Value <= 2) {
				t.Errorf("%s of %v: %+v", c.where, c.errno, one)
			}
			delete(left, one.Name)
		}
		if len(left) > 0 || errors.Is(err, c.errno) != c.told || (err != nil) != c.told {
			t.Errorf("%s of %v: %v are missing, %v", c.where, c.errno, left, err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}
