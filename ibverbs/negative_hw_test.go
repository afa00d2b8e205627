//go:build hw

package ibverbs_test

import (
	"testing"

	"github.com/purerdma/purerdma/internal/hwtest"
	"github.com/purerdma/purerdma/qp"
)

func TestWrongCallsOfARealDevice(t *testing.T) {
	p := hwtest.Pick(t)
	wrongCalls(t, p.Open(t), qp.WithPort(p.Port), qp.WithGIDIndex(p.GID.Index))
}
