// Package tracer runs a program under ptrace so that its stores into some pages are done
// by this process. The pages are mapped without the right to write: each store faults,
// and the tracer sees the fault before any handler of the program's does, reads from the
// instruction what is stored, has it done, and lets the program go on behind the
// instruction. Other signals reach the program.
package tracer
