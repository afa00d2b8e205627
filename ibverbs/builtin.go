package ibverbs

import "github.com/purerdma/purerdma/ibverbs/driver"

// builtin is the drivers that need no import: the kernel's.
func builtin() []driver.Driver { return nil }
