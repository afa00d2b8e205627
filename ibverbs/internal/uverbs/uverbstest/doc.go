// Package uverbstest is for tests of what goes through package uverbs: a decoder
// of ioctl frames, a kernel made of functions, and a recorder of the commands
// that run.
package uverbstest
