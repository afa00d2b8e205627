// Package drivertest is the conformance suite of the seam: what every driver
// does alike, so that what lies above needs to know only ibverbs.
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Config{Open: openTwo})
//	}
//
// It works at the level of package driver and keeps its rules, locks included,
// as package ibverbs does. After each call on the data path it overwrites all
// that it handed in, so that a driver that kept a reference is found out. It
// never assumes that something has happened at once: each wait polls until a
// deadline of Config. Where devices differ lawfully (which of two statuses a
// responder reports, whether a queue frees slots by itself) it takes either. What UC
// and UD send may get lost: what must arrive is sent a few times.
package drivertest
