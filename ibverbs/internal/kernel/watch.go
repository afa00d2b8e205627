package kernel

import (
	"bytes"
	"context"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/purerdma/purerdma/internal/cause"
)

// rescan is how often the list of nodes is compared where the kernel's events do
// not reach this process, as in most containers. With events it is a safety net.
const rescan = 2 * time.Second

// Watch implements driver.Driver.
func (k *kernelDriver) Watch(ctx context.Context, changed chan<- struct{}) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		// Without events the rescan remains.
		_ = k.w.Uevents(ctx, func(msg []byte) {
			if concernsRDMA(msg) {
				notify(changed)
			}
		})
	})
	tick := time.NewTicker(rescan)
	defer tick.Stop()
	before := k.w.nodeNames()
	for {
		select {
		case <-ctx.Done():
			return cause.Of(ctx)
		case <-tick.C:
		}
		if now := k.w.nodeNames(); !slices.Equal(now, before) {
			before = now
			notify(changed)
		}
	}
}

func notify(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// concernsRDMA reports whether an event is of an RDMA device or its node. No
// message at all stands for events that were lost.
func concernsRDMA(msg []byte) bool {
	if msg == nil {
		return true
	}
	for field := range bytes.SplitSeq(msg, []byte{0}) {
		if v, ok := bytes.CutPrefix(field, []byte("SUBSYSTEM=")); ok {
			return bytes.HasPrefix(v, []byte("infiniband"))
		}
	}
	return false
}

// nodeNames tells apart what Devices would: nodes with their device names, which
// can be changed.
func (w *World) nodeNames() []string {
	entries, _ := fs.ReadDir(w.Sys, classVerbs)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		name, _ := w.sysString(classVerbs+"/"+e.Name(), "ibdev")
		names = append(names, e.Name()+"="+name)
	}
	return names
}
