//go:build hw && linux

package interop

import (
	"testing"

	"github.com/purerdma/purerdma/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
