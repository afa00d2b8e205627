package kernel

import (
	"errors"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

// What a provider says to do about a device is not lost in the error of Open.
func TestHintOfAProvider(t *testing.T) {
	n := Node{Info: driver.DeviceInfo{Name: "mlx5_0"}}
	err := (&World{}).openError(n, &driver.Error{Err: driver.ErrNotSupported, Hint: "ask for it"})
	if want := "open on mlx5_0: not supported (ask for it)"; err.Error() != want || !errors.Is(err, driver.ErrNotSupported) {
		t.Errorf("%v, want %s", err, want)
	}
}
