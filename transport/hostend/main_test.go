package hostend

import (
	"testing"

	"github.com/purerdma/purerdma/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
