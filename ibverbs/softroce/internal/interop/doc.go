// Package interop has the tests of softroce with the kernel's Soft-RoCE. It has
// tests only, with the build tag hw; they run in the lab's guest.
//
// Both ends are in one process: softroce's sockets are opened in the network
// namespace of [lab.Host], and stay there.
//
// A table of transport, operation, size, path MTU, IP version, loss and role says
// what is tried. A part of it is run in which every three values of three columns
// meet; PURERDMA_INTEROP=all runs it whole.
package interop
