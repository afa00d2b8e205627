package ibverbs

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/kernel"
	"github.com/purerdma/purerdma/ibverbs/internal/rxe"
)

// builtin is the drivers that need no import: the kernel's.
func builtin() []driver.Driver { return []driver.Driver{kernel.New(kernel.Default(), rxe.New())} }
