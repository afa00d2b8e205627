//go:build !race

package racetest

// Enabled says that the race detector is off.
const Enabled = false
