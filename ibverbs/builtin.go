package ibverbs

import (
	"os"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/kernel"
	"github.com/purerdma/purerdma/ibverbs/internal/mlx5"
	"github.com/purerdma/purerdma/ibverbs/internal/rxe"
)

// mlx5Env lets ConnectX adapters be opened, if it is "unproven". Without it they are
// listed, and Open says why not: a driver that never ran on its device must be asked for.
const mlx5Env = "PURERDMA_MLX5"

// builtin is the drivers that need no import: the kernel's.
func builtin() []driver.Driver {
	return []driver.Driver{kernel.New(kernel.Default(), rxe.New(), mlx5.Provider{Allowed: os.Getenv(mlx5Env) == "unproven"})}
}
