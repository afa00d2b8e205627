package notify

import "golang.org/x/sys/unix"

// What becomes of a call that a Rule is about.
const (
	// Answer has it answered by this process.
	Answer = unix.SECCOMP_RET_USER_NOTIF
	// Allow leaves it to the kernel.
	Allow = unix.SECCOMP_RET_ALLOW
	// Trace stops it for a tracer with PTRACE_O_TRACESECCOMP. Without one it fails
	// with ENOSYS.
	Trace = unix.SECCOMP_RET_TRACE
)

// Refuse fails it.
func Refuse(err unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(err) }

// Rule says what becomes of a system call, if all of Args are so. The first rule that
// fits counts; a call that none fits is the kernel's.
type Rule struct {
	Call   int
	Args   []Arg
	Action uint32
}

// Arg is a condition on the lower half of an argument: with Mask it is Value, or is not
// if Not is set.
type Arg struct {
	Index       int
	Mask, Value uint32
	Not         bool
}

// Is is the condition that an argument has this value.
func Is(index int, value uint32) Arg { return Arg{Index: index, Mask: ^uint32(0), Value: value} }

// Has is the condition that an argument has these bits.
func Has(index int, bits uint32) Arg { return Arg{Index: index, Mask: bits, Value: bits} }

// Offsets in struct seccomp_data. Both architectures are little-endian.
const (
	numberAt = 0
	archAt   = 4
	argsAt   = 16
)

const (
	load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	and    = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	result = unix.BPF_RET | unix.BPF_K
)

// compile is the filter. Calls of another architecture, as of a 32-bit program, are the
// kernel's.
func compile(rules []Rule) []unix.SockFilter {
	f := []unix.SockFilter{
		{Code: load, K: archAt},
		{Code: equal, K: arch, Jt: 1},
		{Code: result, K: Allow},
	}
	for _, r := range rules {
		behind := uint8(3*len(r.Args) + 1) // instructions of the rule that are still to come
		f = append(f, unix.SockFilter{Code: load, K: numberAt}, unix.SockFilter{Code: equal, K: uint32(r.Call), Jf: behind})
		for _, a := range r.Args {
			behind -= 3
			jump := unix.SockFilter{Code: equal, K: a.Value, Jf: behind}
			if a.Not {
				jump.Jt, jump.Jf = behind, 0
			}
			f = append(f, unix.SockFilter{Code: load, K: argsAt + 8*uint32(a.Index)}, unix.SockFilter{Code: and, K: a.Mask}, jump)
		}
		f = append(f, unix.SockFilter{Code: result, K: r.Action})
	}
	return append(f, unix.SockFilter{Code: result, K: Allow})
}
