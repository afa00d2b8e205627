package softroce

import "sync"

// pump is a goroutine that serves queue pairs which could not finish something in
// the goroutine that began it: sending, for want of a window, or answering a long
// read, which would hold up all others.
type pump struct {
	mu   sync.Mutex
	list []*qp
	work []*qp // the list being served
	wake chan struct{}
}

func newPump() *pump { return &pump{wake: make(chan struct{}, 1)} }

func (p *pump) add(q *qp) {
	p.mu.Lock()
	if q.onPump {
		p.mu.Unlock()
		return
	}
	q.onPump = true
	p.list = append(p.list, q)
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
		for _, q := range p.work {
			q.onPump = false
		}
		p.mu.Unlock()
		for i, q := range p.work {
			q.pumped()
			p.work[i] = nil
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
	q.req.starved = false
	q.settle()
}
