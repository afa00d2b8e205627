// Package notify has programs under seccomp's user notification: a filter names system
// calls, the kernel holds a program at each of them, and this process answers in the
// kernel's place. It takes no privilege, and Linux 5.19.
//
// A filter is inherited, so it is installed on a thread that starts the programs and is
// good for nothing else after.
package notify
