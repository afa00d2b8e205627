package shmtransport

import (
	"sync/atomic"
	"time"

	"github.com/purerdma/purerdma/internal/cpu"
)

// A line that another core has just written takes 40 to 100 ns to arrive from a near one and 140 to 210 ns from a distant one: hardly
// any overlap. Virtual machines move their processors, so a connection changes from one to the other while it runs. Times of copies
// do not tell: each way of copying looks good in the regime that it was chosen for.
const (
	farFrom   = 108 * time.Nanosecond // a load that takes longer came from a distant core
	neverFrom = 2 * time.Microsecond  // and one that takes this long was interrupted
	votesFar  = 2                     // in a row change the hint to far
	votesNear = 8                     // and to near
	// A load that takes less than aheadTo found a line that had come ahead of it, from wherever. Most do in a stream of long messages, also
	// from a distant core; where all do the two share a core. So many of them count as one.
	aheadTo   = 40 * time.Nanosecond
	aheadEach = 8
)

// sensor decides whether the sender's core is distant.
type sensor struct {
	begun      time.Time
	ticks      uint64
	perMicro   float64 // ticks of the time stamp counter in a microsecond; 0 = not known yet
	far, count uint32  // the count is of votes, aheadEach for one
}

func newSensor() sensor { return sensor{begun: time.Now(), ticks: cpu.Ticks()} }

// feel times the load of the line that the sender has just written, and changes the hint when it is sure.
func (s *sensor) feel(c *control) {
	took := cpu.TimeLoad(&c.stamp)
	if took == 0 {
		return
	}
	if s.vote(time.Duration(1000 * float64(took) / s.rate())) {
		atomic.StoreUint32(&c.far, s.far)
	}
}

// vote counts one time and reports whether the verdict has changed.
func (s *sensor) vote(took time.Duration) bool {
	var far uint32
	switch {
	case took >= neverFrom:
		return false
	case took >= farFrom:
		far = 1
	}
	if far == s.far {
		if took >= aheadTo {
			s.count = 0
		}
		return false
	}
	weight, votes := uint32(aheadEach), uint32(votesNear*aheadEach)
	switch {
	case far == 1:
		votes = votesFar * aheadEach
	case took < aheadTo:
		weight = 1
	}
	if s.count += weight; s.count < votes {
		return false
	}
	s.far, s.count = far, 0
	return true
}

// rate is how many ticks a microsecond has: as measured since the connection was made, once that is long enough to measure, and until
// then a usual number.
func (s *sensor) rate() float64 {
	const usual, enough = 2600, 10 * time.Millisecond
	if s.perMicro == 0 {
		past := time.Since(s.begun)
		if past < enough {
			return usual
		}
		s.perMicro = float64(cpu.Ticks()-s.ticks) / float64(past.Microseconds())
	}
	return s.perMicro
}
