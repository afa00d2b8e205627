package transport

import (
	"errors"

	"github.com/purerdma/purerdma/transport/driver"
)

// collNet holds the last place in NCCL's order. Its reductions are done by switches, which nothing here drives.
type collNet struct{}

func (collNet) Name() string             { return "COLLNET" }
func (collNet) Describe(*PeerInfo) error { return nil }
func (collNet) CanConnect(_, _ *PeerInfo) Verdict {
	return Verdict{Reason: "collective networks are not supported"}
}
func (collNet) Setup(driver.Request, *Blob) (Connector, error) {
	return nil, errors.New("collective networks are not supported")
}
