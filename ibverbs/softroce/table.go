package softroce

import (
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"
)

// table finds objects by a random number, keys and QP numbers, without a lock:
// packets of all QPs look into it. Numbers are never 0.
type table[T any] struct {
	slots atomic.Pointer[[]slot[T]] // a power of two
	mu    sync.Mutex                // of those who change it
	live  int                       // objects in it
	used  int                       // slots with a number, of removed objects too
}

// slot keeps its number for ever; v is nil once the object was removed.
type slot[T any] struct {
	number atomic.Uint32
	v      atomic.Pointer[T]
}

// get is the object with this number, or nil.
func (t *table[T]) get(number uint32) *T {
	slots := t.slots.Load()
	if slots == nil || number == 0 {
		return nil
	}
	mask := uint32(len(*slots) - 1)
	for i := mix(number); ; i++ {
		s := &(*slots)[i&mask]
		switch s.number.Load() {
		case number:
			return s.v.Load()
		case 0:
			return nil
		}
	}
}

// mix spreads numbers whose upper bits alone differ.
func mix(number uint32) uint32 { return number * 0x9e3779b1 >> 7 }

// add enters v under a number of its own, which it takes from random; mask is
// the bits that a number may have.
func (t *table[T]) add(v *T, random io.Reader, mask uint32, admit func(uint32) bool) (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		var b [4]byte
		if _, err := io.ReadFull(random, b[:]); err != nil {
			return 0, err
		}
		number := binary.LittleEndian.Uint32(b[:]) & mask
		if number == 0 || !admit(number) || t.get(number) != nil {
			continue
		}
		t.reserve()
		t.enter(*t.slots.Load(), number, v)
		t.live++
		return number, nil
	}
}

// reserve makes room for one more. Readers keep the slots they have.
func (t *table[T]) reserve() {
	old := t.slots.Load()
	if old != nil && 4*(t.used+1) <= 3*len(*old) {
		return
	}
	n := 16
	for 2*(t.live+1) > n {
		n *= 2
	}
	grown := make([]slot[T], n)
	t.used = 0
	if old != nil {
		for i := range *old {
			if v := (*old)[i].v.Load(); v != nil {
				t.enter(grown, (*old)[i].number.Load(), v)
			}
		}
	}
	t.slots.Store(&grown)
}

func (t *table[T]) enter(slots []slot[T], number uint32, v *T) {
	mask := uint32(len(slots) - 1)
	for i := mix(number); ; i++ {
		s := &slots[i&mask]
		switch s.number.Load() {
		case 0:
			t.used++
		case number:
		default:
			continue
		}
		s.v.Store(v)
		s.number.Store(number)
		return
	}
}

// remove takes an object out.
func (t *table[T]) remove(number uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slots := *t.slots.Load()
	mask := uint32(len(slots) - 1)
	for i := mix(number); ; i++ {
		s := &slots[i&mask]
		switch s.number.Load() {
		case number:
			s.v.Store(nil)
			t.live--
			return
		case 0:
			return
		}
	}
}

func (t *table[T]) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live
}
