//go:build race

package shmtransport

import "sync/atomic"

func (g *gate) load() uint32 { return atomic.LoadUint32(&g.state) }

func (g *gate) store(v uint32) { atomic.StoreUint32(&g.state, v) }
