package wire

// PSN is a packet sequence number: 24 bits that wrap.
type PSN uint32

// PSNMask is its bits.
const PSNMask = 1<<24 - 1

// Add is the PSN n packets later.
func (p PSN) Add(n uint32) PSN { return (p + PSN(n)) & PSNMask }

// Sub is how far p is ahead of q, negative if it is behind: the signed distance
// in 24 bits, −2^23 ≤ d < 2^23.
func (p PSN) Sub(q PSN) int32 { return int32((p-q)<<8) >> 8 }

// Before says whether p is behind q by less than half of the numbers.
func (p PSN) Before(q PSN) bool { return p.Sub(q) < 0 }
