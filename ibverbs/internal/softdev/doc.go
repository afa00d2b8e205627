// Package softdev is what devices in software have in common: the queue of events
// that somebody waits for, and which changes of a queue pair the IBTA allows.
package softdev
