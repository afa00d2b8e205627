package gpu

import (
	"fmt"
	"sort"
	"sync"
)

var registry struct {
	sync.Mutex
	drivers map[string]Driver
}

// Register makes a driver known, from the init function of its package. Two of
// one name panic.
func Register(d Driver) {
	registry.Lock()
	defer registry.Unlock()
	if registry.drivers == nil {
		registry.drivers = map[string]Driver{}
	}
	if _, twice := registry.drivers[d.Name()]; twice {
		panic(fmt.Sprintf("gpu: driver %q is registered twice", d.Name()))
	}
	registry.drivers[d.Name()] = d
}

// Drivers is the drivers that the program has imported, by name.
func Drivers() []Driver {
	registry.Lock()
	defer registry.Unlock()
	all := make([]Driver, 0, len(registry.drivers))
	for _, d := range registry.drivers {
		all = append(all, d)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name() < all[j].Name() })
	return all
}
