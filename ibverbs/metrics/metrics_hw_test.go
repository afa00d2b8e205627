//go:build hw

package metrics_test

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/metrics"
	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/mr"
)

// onAnotherThread calls f on a thread other than the one that the process is named after, and keeps that thread.
func onAnotherThread(f func()) {
	runtime.LockOSThread() // if this is the first thread, f's is none
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if syscall.Gettid() != os.Getpid() {
			f()
		} else {
			onAnotherThread(f)
		}
		close(done)
	}()
	<-done
}

// What this process has on a device of the kernel is among its metrics, with its counters.
func TestOwnObjectsAreCounted(t *testing.T) {
	p := hwtest.Pick(t)
	dev := p.Open(t)
	if dev.Info().Index < 0 {
		t.Skip("the kernel does not account for this device")
	}
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	buf, err := mr.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	var m *ibverbs.MR
	onAnotherThread(func() { m, err = pd.RegMR(buf, ibverbs.LocalWrite) }) // which the kernel names
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range one.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			own := labels["pid"] == "" || labels["pid"] == strconv.Itoa(os.Getpid())
			if labels["device"] == dev.Info().Name && own {
				found[f.GetName()+" "+labels["kind"]+labels["counter"]] = one.GetGauge().GetValue() + one.GetCounter().GetValue()
			}
		}
	}
	for name, want := range map[string]float64{"rdma_process_objects mr": 1, "rdma_process_objects pd": 1, "rdma_process_objects ctx": 2,
		"rdma_process_registered_bytes ": 1 << 20, "rdma_port_up ": 1, "rdma_collect_error ": 0, "rdma_device_info ": 1} {
		got, there := found[name]
		if name == "rdma_process_objects ctx" && got == 1 { // the collection's own may be closed by then
			got = want
		}
		if !there || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if _, there := found["rdma_port_hw_total sent_pkts"]; !there && dev.Info().Driver == "rxe" {
		t.Errorf("no counter sent_pkts in %v", found)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := pd.Close(); err != nil {
		t.Error(err)
	}
}
