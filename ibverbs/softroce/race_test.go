//go:build race

package softroce

// raceDetector is on: sync.Pool forgets at random then, so posts allocate.
const raceDetector = true
