// Package racetest says whether a test runs under the race detector, which makes sync.Pool forget at random: what takes
// its memory from a pool allocates then.
package racetest
