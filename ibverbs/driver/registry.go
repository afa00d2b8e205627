package driver

import (
	"slices"
	"sync"
)

var (
	registryMu sync.Mutex
	registered []Driver
)

// Register adds a driver to those that ibverbs looks through by default. It is
// called from init by packages that a program imports for their devices, and is
// the only global of the seam. A name registered twice panics.
func Register(d Driver) {
	registryMu.Lock()
	defer registryMu.Unlock()
	for _, o := range registered {
		if o.Name() == d.Name() {
			panic("purerdma: driver " + d.Name() + " is registered twice")
		}
	}
	registered = append(registered, d)
}

// Registered is the drivers registered so far.
func Registered() []Driver {
	registryMu.Lock()
	defer registryMu.Unlock()
	return slices.Clone(registered)
}
