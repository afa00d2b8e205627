package softroce

import "sync"

// pump is a goroutine that serves queue pairs which could not finish something in
// the goroutine that began it: sending, for want of a window, or answering a long
// read, which would hold up all others.
type pump struct {
	mu   sync.Mutex
	list []task
	work []task // the list being served
	wake chan struct{}
}

// task is a queue pair, and the flow whose turn it is in, if it waited for that.
type task struct {
	q    *qp
	turn *flow
}

func newPump() *pump { return &pump{wake: make(chan struct{}, 1)} }

func (p *pump) add(q *qp) {
	p.mu.Lock()
	if q.onPump {
		p.mu.Unlock()
		return
	}
	q.onPump = true
	p.put(task{q, nil})
}

// addTurn adds a queue pair whose turn it is.
func (p *pump) addTurn(q *qp, f *flow) {
	p.mu.Lock()
	p.put(task{q, f})
}

// put unlocks.
func (p *pump) put(t task) {
	p.list = append(p.list, t)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run serves until done is closed.
func (p *pump) run(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-p.wake:
		}
		p.mu.Lock()
		p.list, p.work = p.work[:0], p.list
		for _, t := range p.work {
			if t.turn == nil {
				t.q.onPump = false
			}
		}
		p.mu.Unlock()
		for i, t := range p.work {
			if t.turn == nil {
				t.q.pumped()
			} else {
				t.q.takeTurn()
				t.turn.wake() // for the next, if there is something left
			}
			p.work[i] = task{}
		}
	}
}

// pumped goes on with what was left.
func (q *qp) pumped() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	var acks burst
	q.settle(&acks, false)
	acks.flush(q.e)
}

// takeTurn sends what waited for the flow.
func (q *qp) takeTurn() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.req.starved, q.req.turn = false, true
	q.transmit()
	q.req.turn = false
}
