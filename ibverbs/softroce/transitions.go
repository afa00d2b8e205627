package softroce

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/wire"
)

// transports is whose packets each type of queue pair takes.
var transports = map[driver.QPType]wire.Transport{driver.RC: wire.RC, driver.UC: wire.UC, driver.UD: wire.UD}
