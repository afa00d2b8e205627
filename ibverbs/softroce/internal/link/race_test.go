//go:build race

package link

// raceEnabled: sync.Pool forgets at random under the race detector.
const raceEnabled = true
