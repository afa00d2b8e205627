package fifo

import "github.com/purerdma/purerdma/mr"

// CreditStaging is the receiver's copy of the ring of offers, from which it
// writes rows to the sender of data.
type CreditStaging struct{ ring ring }

// NewCreditStaging makes an empty copy of 128 KiB. Close frees it.
func NewCreditStaging(l Layout, opts ...mr.Option) (*CreditStaging, error) {
	r, err := newRing(l, opts)
	if err != nil {
		return nil, err
	}
	return &CreditStaging{r}, nil
}

// Buffer is the memory to register.
func (s *CreditStaging) Buffer() *mr.Buffer { return s.ring.buf }

// Fill writes the offers of message k into the copy and returns where: n bytes
// from off on are what goes to Layout.CreditAddr(base, k) in one RDMA write. It
// sets NReqs and Idx itself. The row may be filled again 256 messages later,
// when the write of this one is done. Offers that a peer would refuse are an
// error, and then nothing is written.
func (s *CreditStaging) Fill(k uint64, offers []CTS) (off, n int, err error) {
	if !s.ring.open() {
		return 0, 0, ErrClosed
	}
	if len(offers) < 1 || len(offers) > MaxRecvs {
		return 0, 0, errCount(len(offers))
	}
	var checked [MaxRecvs]CTS
	for i := range offers {
		o := &checked[i]
		*o = offers[i]
		o.NReqs, o.Idx = uint32(len(offers)), k+1
		if what := o.wrong(o.Idx, o.NReqs); what != "" {
			return 0, 0, errOwnOffer(i, what)
		}
	}
	for i := range offers {
		s.ring.store(k, i, &checked[i])
	}
	return int(row(k)) * creditRow, len(offers) * offerBytes, nil
}

// Close frees the memory once its MRs are closed too. A second Close is nil.
func (s *CreditStaging) Close() error { return s.ring.close() }
