package softroce

import "github.com/purerdma/purerdma/ibverbs/driver"

// isLocal says that a request is done here, without a packet.
func isLocal(op driver.Opcode) bool { return op == driver.OpBindMW || op == driver.OpLocalInv }

// doLocal does such a request when its turn to be sent has come: what is sent behind
// it finds it done, and what was sent before it may still be under way, unless it is
// fenced from reads. It is done once, whatever is sent again.
func (q *qp) doLocal(w *request) {
	ok := false
	if w.op == driver.OpBindMW {
		ok = q.bind(&w.bind, w.remote.Addr, w.remote.RKey)
	} else {
		ok = q.invalidate(w.imm)
	}
	if ok {
		w.executed = true
	} else {
		w.failed = driver.MWBindErr // the memory management operation error of the IBTA
	}
}

// invalidate frees the window with this key. No other key can be invalidated: not
// that of an MR, which only Close ends, nor that of a window which is free or bound
// to another queue pair (IBTA volume 1, 10.6.7.2).
func (q *qp) invalidate(key uint32) bool {
	w := q.window(key)
	if w == nil {
		return false
	}
	q.unbind(w)
	return true
}

// completeLocal ends the local requests that nothing is before any more.
func (q *qp) completeLocal() {
	for q.sq.done < q.sq.posted && q.attr.State != driver.StateErr {
		if w := q.sq.at(q.sq.done); !w.executed {
			return
		}
		q.completeSend(driver.Success, 0)
	}
}
