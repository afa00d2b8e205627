package ibverbs

import "github.com/purerdma/purerdma/ibverbs/driver"

// AH is an address handle (struct ibv_ah): the way to a peer, for datagrams of all
// UD QPs of its PD.
type AH struct {
	dev *device
	d   driver.AH
	n   *node
}

// CreateAH makes an address handle. It may sit in the kernel for about a second
// while the peer's address is resolved.
func (p *PD) CreateAH(a AHAttr) (*AH, error) {
	h := &AH{dev: p.dev}
	err := p.dev.create("create address handle to "+a.DGID.Addr().String(), rankAH, "address handle", []*node{p.n},
		func(n *node) (string, func() error, error) {
			d, err := p.d.CreateAH(a)
			if err != nil {
				return "", nil, err
			}
			h.d, h.n = d, n
			return "", d.Close, nil
		}, h)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// To is the QP qpn at the peer, for SendWR.UD. A qkey with the highest bit set
// stands for the sender's own (IBTA 10.2.5).
func (a *AH) To(qpn, qkey uint32) Destination { return Destination{AH: a.d, QPN: qpn, QKey: qkey} }

// Close frees the handle. Requests that name it must have been completed.
func (a *AH) Close() error { return a.dev.closeNode("close address handle", a.n) }
