package ibverbs

import "github.com/purerdma/purerdma/ibverbs/driver"

// ECE is the options of enhanced connection establishment (struct ibv_ece): Vendor,
// Options, CompMask.
type ECE = driver.ECE

// SetECE asks for the options that both ends have agreed on, before the QP goes to
// RTR. Devices without lack FeatureECE.
func (q *QP) SetECE(e ECE) error {
	return q.ece("set ECE", func(d driver.ECEQP) error { return d.SetECE(e) })
}

// ECE is the options that the device can offer the peer, and after RTR those in use.
// Devices without lack FeatureECE.
func (q *QP) ECE() (e ECE, err error) {
	err = q.ece("query ECE", func(d driver.ECEQP) (err error) { e, err = d.QueryECE(); return err })
	return e, err
}

func (q *QP) ece(op string, f func(driver.ECEQP) error) error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	err := driver.ErrClosed
	if d, ok := q.d.(driver.ECEQP); !q.closed && ok {
		err = f(d)
	} else if !q.closed {
		err = &NotSupportedError{Feature: FeatureECE, By: driver.LacksDriver}
	}
	return wrap(op, q.dev.info.Name, q.n.name, err)
}
