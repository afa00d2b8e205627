package mlx5model

import (
	"syscall"
	"time"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// What the adapter takes for moderation, which are fields of 16 and 12 bits.
const (
	maxModerationCount  = 1<<16 - 1
	maxModerationPeriod = 1<<12 - 1 // µs
)

// moderation is how long a CQ holds an event back: until so many completions have come
// since the last, or a time has passed. 0 of one is never by it, of both is not at all.
type moderation struct {
	count  uint32
	period time.Duration
	come   uint32    // completions since the last event
	since  time.Time // when the event was held back first; zero if none is
}

// holds says whether an event is to wait.
func (h *moderation) holds(now time.Time) bool {
	if h.since.IsZero() {
		h.since = now
	}
	return (h.count != 0 || h.period != 0) &&
		(h.count == 0 || h.come < h.count) && (h.period == 0 || now.Sub(h.since) < h.period)
}

// told begins anew after an event.
func (h *moderation) told() { h.come, h.since = 0, time.Time{} }

// modifyCQ answers MODIFY_CQ.
func (c *call) modifyCQ(request []byte) ([]byte, error) {
	r := structOf[uapi.ModifyCQ](request)
	switch {
	case r.AttrMask == 0, r.Reserved != 0:
		return nil, syscall.EINVAL
	case r.AttrMask&^uapi.CQModerate != 0:
		return nil, syscall.EOPNOTSUPP
	}
	q, err := object[*cq](c.context, uint64(r.CQHandle))
	if err != nil {
		return nil, err
	}
	if r.CQPeriod > maxModerationPeriod {
		return nil, syscall.EINVAL
	}
	q.count, q.period = uint32(r.CQCount), time.Duration(r.CQPeriod)*time.Microsecond
	q.notify()
	return nil, nil
}
