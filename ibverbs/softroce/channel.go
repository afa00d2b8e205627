package softroce

import (
	"context"
	"sync/atomic"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/softdev"
)

// compChannel delivers events of completion queues.
type compChannel struct {
	ctx    *softContext
	events *softdev.Mailbox[*cq]
	users  atomic.Int64
}

func (ch *compChannel) Wait(ctx context.Context) (uint64, error) {
	c, err := ch.events.Wait(ctx)
	if err != nil {
		return 0, err
	}
	return c.cookie, nil
}

func (ch *compChannel) Close() error {
	if ch.users.Load() > 0 {
		return driver.ErrBusy
	}
	ch.ctx.users.Add(-1)
	ch.events.Close()
	return nil
}
