//go:build !race

package softroce

const raceDetector = false
