package plan

import (
	"math"
	"time"
)

// Timing is what a case took when it was tried out.
type Timing struct {
	Message   time.Duration // in a stream
	RoundTrip time.Duration // of a ping-pong
	Overhead  time.Duration // around one measurement: what both ends say to each other
}

// Count is how much of a case one round measures.
type Count struct{ Messages, RoundTrips int }

// Fitted is counts for each case, and how long all rounds together should take with them.
type Fitted struct {
	Counts []Count
	Total  time.Duration
}

// Bounds of a fitted count. Fewer messages than are in flight would measure the start, more than the upper bound would not tell more.
// Two round trips in each of five rounds have a median, a thousand have a 99th percentile.
const (
	minMessages   = 4
	maxMessages   = 20_000
	minRoundTrips = 2
	maxRoundTrips = 1_000
)

// Fit shares the time that is left among the cases so that all rounds fit into it. Each case gets the same time for its stream and
// for its round trips; what a fast case does not need goes to the slower ones. iters > 0 sets the messages, and the round trips
// too as far as they are allowed. Where even the least does not fit, Total says how long it takes.
func Fit(ts []Timing, depth, rounds, iters int, left time.Duration) Fitted {
	f := Fitted{Counts: make([]Count, len(ts))}
	if len(ts) == 0 || rounds < 1 {
		return f
	}
	least, most := max(minMessages, depth), max(maxMessages, depth)
	share := float64(left) / float64(rounds) / float64(len(ts)) / 2
	for range 8 { // each pass hands on what the last one left
		total := 0.0
		for i, t := range ts {
			room := share - float64(t.Overhead)
			c := Count{Messages: times(room, t.Message, least, most), RoundTrips: times(room, t.RoundTrip, minRoundTrips, maxRoundTrips)}
			if iters > 0 {
				c = Count{Messages: iters, RoundTrips: min(max(iters, minRoundTrips), maxRoundTrips)}
			}
			f.Counts[i] = c
			total += 2*float64(t.Overhead) + float64(c.Messages)*float64(t.Message) + float64(c.RoundTrips)*float64(t.RoundTrip)
		}
		total *= float64(rounds)
		f.Total = time.Duration(min(total, math.MaxInt64/2))
		if iters > 0 || total == 0 || math.Abs(total/float64(left)-1) < 0.02 {
			break
		}
		share *= min(max(float64(left)/total, 0.25), 4)
	}
	return f
}

// times is how often something goes into room.
func times(room float64, each time.Duration, least, most int) int {
	n := room / max(float64(each), 1)
	return int(min(max(n, float64(least)), float64(most)))
}
