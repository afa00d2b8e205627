package nvidia

import (
	"errors"
	"sync"
)

// kind is a kind of thing that a hold must free.
type kind uint8

const (
	memory kind = iota
	reservation
	mapping
	allocation
	registration
	imported
	stream
	event
	module
)

type thing struct {
	kind   kind
	handle uint64
}

// ledger is what was made through a hold and not freed yet, in the order of
// making.
type ledger struct {
	sync.Mutex
	seq    uint64
	things map[thing]entry
}

type entry struct {
	seq  uint64
	free func(calls) error
}

func (g *ledger) add(k kind, handle uint64, free func(calls) error) {
	g.Lock()
	defer g.Unlock()
	if g.things == nil {
		g.things = map[thing]entry{}
	}
	g.seq++
	g.things[thing{k, handle}] = entry{g.seq, free}
}

func (g *ledger) drop(k kind, handle uint64) {
	g.Lock()
	defer g.Unlock()
	delete(g.things, thing{k, handle})
}

// closeAll frees what is left, the youngest first, so that mappings go before what
// they map.
func (g *ledger) closeAll(c calls) error {
	var errs []error
	for {
		t, free := g.youngest()
		if free == nil {
			return errors.Join(errs...)
		}
		g.drop(t.kind, t.handle)
		errs = append(errs, free(c))
	}
}

func (g *ledger) youngest() (t thing, free func(calls) error) {
	g.Lock()
	defer g.Unlock()
	var last uint64
	for at, e := range g.things {
		if e.seq > last {
			t, free, last = at, e.free, e.seq
		}
	}
	return t, free
}
