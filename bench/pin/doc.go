// Package pin keeps a benchmark's process on one processor: the scheduler's moves are no program's merit.
package pin
