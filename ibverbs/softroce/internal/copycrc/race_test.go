//go:build race

package copycrc

// race is on: the detector makes sync.Pool forget now and then.
const race = true
