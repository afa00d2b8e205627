package shmtransport

import (
	"fmt"
	"testing"
)

// The explorer walks through every interleaving of a sender and a receiver on a ring of two cells, each of whose steps touches shared
// memory once, under the memory order of amd64: a store goes into the processor's own buffer, and from there to memory at any later
// moment, in order; a load sees the own buffer first. Sleeping is the steps of nap, the code that runs. The steps of the hot paths
// (publish, tell, and the look at the other's word) are written out here as send.go and recv.go make them.
//
// A state in which nobody can go on and somebody has not finished is a lost wake-up; a message read before it was written or
// overwritten before it was read is a wrong value.

const (
	modelCells    = 2
	modelMessages = 4
	bufferMax     = 4
)

// The words of shared memory in the model.
const (
	wordValue = 0 // of each cell
	wordSeq   = wordValue + modelCells
	wordRead  = wordSeq + modelCells

	wordReceiverAsleep = wordRead + 1
	wordSenderAsleep   = wordRead + 2
	words              = wordRead + 3
)

type store struct{ at, value uint8 }

// who is one of the two processes.
type who struct {
	buffer [bufferMax]store
	stores uint8
	pc     uint8
	nap    nap
	count  uint8 // messages sent or received
	value  uint8
	sleeps bool // in futex(2)
}

// state is all there is; equal states have equal futures.
type state struct {
	memory [words]uint8
	who    [2]who
	wrong  bool
}

const (
	sender   = 0
	receiver = 1
)

// mutation is a mistake that the explorer has to find.
type mutation uint8

const (
	correct mutation = iota
	noBarrier
	lookBeforeMark
	sleepUnconditionally
	wakeBeforeClear
	neverWakeSender
	tellBeforeRead
	sequenceBeforeValue
	ignoreCredit
	fenced     // no mistake: the way without membarrier, with a fence after each publish
	halfFenced // that way, but the fence after a publish is missing
)

func (m mutation) String() string {
	return [...]string{"correct", "no barrier", "look before the word is set", "sleep whatever the word is", "wake before the word is cleared",
		"the sender is not woken", "room told before the value is read", "sequence stored before the value", "room ignored",
		"fenced", "no fence after a publish"}[m]
}

// model is one process's view of a state, for one step.
type model struct {
	s   *state
	me  int
	bad mutation
}

func (m model) self() *who { return &m.s.who[m.me] }

func (m model) store(at, value uint8) {
	w := m.self()
	w.buffer[w.stores] = store{at, value}
	w.stores++
}

func (m model) load(at uint8) uint8 {
	w := m.self()
	for i := int(w.stores) - 1; i >= 0; i-- {
		if w.buffer[i].at == at {
			return w.buffer[i].value
		}
	}
	return m.s.memory[at]
}

// drain lets the oldest store of a process reach memory.
func (s *state) drain(i int) {
	w := &s.who[i]
	s.memory[w.buffer[0].at] = w.buffer[0].value
	copy(w.buffer[:], w.buffer[1:])
	w.buffer[bufferMax-1] = store{}
	w.stores--
}

func (s *state) drainAll(i int) {
	for s.who[i].stores > 0 {
		s.drain(i)
	}
}

func (m model) word() uint8 {
	if m.me == receiver {
		return wordReceiverAsleep
	}
	return wordSenderAsleep
}

// The model is a [bed].

func (m model) mark(v uint32) { // atomic.StoreUint32 is an exchange: a full barrier for this processor
	m.store(m.word(), uint8(v))
	m.s.drainAll(m.me)
}

func (m model) barrier() {
	switch m.bad {
	case noBarrier:
	case fenced, halfFenced:
		m.s.drainAll(m.me)
	default:
		m.s.drainAll(sender)
		m.s.drainAll(receiver)
	}
}

func (m model) ready() bool {
	w := m.self()
	if m.me == receiver {
		return m.load(wordSeq+w.count%modelCells) == w.count+1
	}
	return w.count < m.load(wordRead)+modelCells
}

func (m model) sleep() { // a system call: what this processor has stored is in memory by then
	m.s.drainAll(m.me)
	m.self().sleeps = m.bad == sleepUnconditionally || m.s.memory[m.word()] == 1
}

// wake is futex(2) for the other's word.
func (m model) wake() {
	m.s.drainAll(m.me)
	m.s.who[1-m.me].sleeps = false
}

// napSome makes a step of a nap and reports whether it was the last.
func (m model) napSome() bool {
	n := &m.self().nap
	if m.bad == lookBeforeMark { // the same steps in another order: look, mark, barrier, sleep
		switch n.at {
		case napMark:
			if n.at = napLook; m.ready() {
				n.at = napClear
			}
			return false
		case napLook:
			m.mark(1)
			n.at = napSleep
			return false
		}
	}
	n.step(m)
	if n.at != napOver {
		return false
	}
	*n = nap{}
	return true
}

// The steps of a process. Waking is two of them, so that each mistake in their order shows.
const (
	pcLook = iota
	pcFirst
	pcSecond
	pcThird
	pcPeek
	pcWake1
	pcWake2
	pcNap
	pcOver
)

func (m model) step() {
	w := m.self()
	if w.pc == pcNap {
		if m.napSome() {
			w.pc = pcLook
		}
		return
	}
	if m.me == sender {
		m.send(w)
	} else {
		m.receive(w)
	}
}

func (m model) send(w *who) {
	slot := w.count % modelCells
	switch w.pc {
	case pcLook:
		switch {
		case w.count == modelMessages:
			w.pc = pcOver
		case m.bad == ignoreCredit || m.ready():
			w.pc = pcFirst
		default:
			w.pc = pcNap
		}
	case pcFirst:
		if m.bad == sequenceBeforeValue {
			m.store(wordSeq+slot, w.count+1)
		} else {
			m.store(wordValue+slot, w.count+10)
		}
		w.pc = pcSecond
	case pcSecond:
		if m.bad == sequenceBeforeValue {
			m.store(wordValue+slot, w.count+10)
		} else {
			m.store(wordSeq+slot, w.count+1)
		}
		w.count++
		w.pc = pcPeek
	default:
		m.rouse(w, wordReceiverAsleep)
	}
}

func (m model) receive(w *who) {
	slot := w.count % modelCells
	switch w.pc {
	case pcLook:
		switch {
		case w.count == modelMessages:
			w.pc = pcOver
		case !m.ready():
			w.pc = pcNap
		case m.bad == tellBeforeRead:
			w.pc = pcSecond
		default:
			w.pc = pcFirst
		}
	case pcFirst:
		w.value = m.load(wordValue + slot)
		if m.bad == tellBeforeRead {
			m.check(w)
			w.pc = pcPeek
			return
		}
		w.pc = pcSecond
	case pcSecond:
		m.store(wordRead, w.count+1)
		if m.bad == tellBeforeRead {
			w.pc = pcFirst
			return
		}
		m.check(w)
		w.pc = pcPeek
	default:
		m.rouse(w, wordSenderAsleep)
	}
}

func (m model) check(w *who) {
	if w.value != w.count+10 {
		m.s.wrong = true
	}
	w.value = 0
	w.count++
}

// rouse is the look at the other's word, and wakePeer.
func (m model) rouse(w *who, word uint8) {
	switch w.pc {
	case pcPeek:
		if m.bad == fenced {
			m.s.drainAll(m.me)
		}
		w.pc = pcLook
		if m.load(word) != 0 && (m.bad != neverWakeSender || m.me == sender) {
			w.pc = pcWake1
		}
	case pcWake1:
		if m.bad == wakeBeforeClear {
			m.wake()
		} else {
			m.store(word, 0)
		}
		w.pc = pcWake2
	case pcWake2:
		if m.bad == wakeBeforeClear {
			m.store(word, 0)
		} else {
			m.wake()
		}
		w.pc = pcLook
	}
}

// explore visits every state that can be reached, and tells what is wrong with one.
func explore(bad mutation) (visited int, problem string) {
	start := state{}
	seen := map[state]bool{start: true}
	queue := []state{start}
	for len(queue) > 0 {
		s := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		visited++
		if s.wrong {
			return visited, "a wrong value was read"
		}
		moves, over := 0, 0
		add := func(n state) {
			moves++
			if !seen[n] {
				seen[n] = true
				queue = append(queue, n)
			}
		}
		for i := range s.who {
			w := &s.who[i]
			if w.pc == pcOver {
				over++
			}
			if w.stores > 0 {
				n := s
				n.drain(i)
				add(n)
			}
			if w.pc == pcOver || w.sleeps {
				continue
			}
			n := s
			if w.stores == bufferMax { // a full buffer holds the processor up
				continue
			}
			model{&n, i, bad}.step()
			add(n)
		}
		if moves == 0 && over < 2 {
			return visited, fmt.Sprintf("nobody goes on: %d sent, %d received, asleep %v, %v", s.who[sender].count, s.who[receiver].count,
				s.who[sender].sleeps, s.who[receiver].sleeps)
		}
	}
	return visited, ""
}

func TestEveryInterleaving(t *testing.T) {
	for _, way := range []mutation{correct, fenced} {
		visited, problem := explore(way)
		if problem != "" {
			t.Errorf("%v: after %d states: %s", way, visited, problem)
		}
		if visited < 1000 {
			t.Errorf("%v: only %d states: the model does not move", way, visited)
		}
		t.Logf("%v: %d states", way, visited)
	}
}

func TestMutationsAreFound(t *testing.T) {
	for bad := noBarrier; bad <= halfFenced; bad++ {
		if bad == fenced {
			continue
		}
		visited, problem := explore(bad)
		if problem == "" {
			t.Errorf("%v: not found in %d states", bad, visited)
			continue
		}
		t.Logf("%v: %s, after %d states", bad, problem, visited)
	}
}
