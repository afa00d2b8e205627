//go:build !race

package shmtransport

import "github.com/purerdma/purerdma/internal/mmio"

func (g *gate) load() uint32 { return mmio.LoadAcquire32(&g.state) }

// store is a plain store: an exchange, which atomic.Store is, would wait for all stores before it to reach the cache, message by
// message.
func (g *gate) store(v uint32) { mmio.StoreRelease32(&g.state, v) }
