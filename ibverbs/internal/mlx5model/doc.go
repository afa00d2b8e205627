// Package mlx5model is a ConnectX adapter in software, with the part of mlx5_ib that a
// program sees: unmodified programs of rdma-core run on it. It is a test bed for the
// driver in package mlx5, and is trusted as far as libmlx5, which works on hardware,
// agrees with it. It is no emulation: ordering on PCI Express, firmware, congestion and
// time are not modelled.
//
// # Two halves
//
// The kernel half answers RDMA_VERBS_IOCTL: it reads the frame and what the frame points
// to from the program's memory, makes the checks that mlx5_ib makes, and keeps the
// objects of each open file. The adapter half watches the registers of doorbells, reads
// queue entries from the program's memory, moves data between the memories of programs,
// and writes completions. A register holds one value, so what rang in a page is told by
// the doorbell records, and a record that is stored after its register is not told from
// one in time.
//
// Errors are those that requests bring about on the model, with the states, flushes and
// events behind them; Config.Plant has any other syndrome. What an adapter makes of a fault
// of its own, or of packets that are corrupt, is not modelled.
//
// # The ways in
//
// preload/shim.c, a preload library, forwards what a program does to the device's node to
// a Server over a Unix socket. Server.Env is the environment of such a program: it names
// the socket, and a tree of sysfs files that libibverbs takes for the machine's. With
// MLX5MODEL_TRAP in it too the library catches each store into a page of doorbells, and
// the model sees what memory holds at that moment. Local is the way in for our driver, in
// the model's own process.
//
// Supervise is the way in for any program, as a static one in Go, which no library
// reaches. It answers the system calls by which the program finds and uses the device, by
// seccomp's user notification, from the same tree and the same socket; mmap it leaves to
// the kernel. With Trap it also is the program's tracer, and does each store into a page
// of doorbells in the program's place, as far as package stores knows the instruction.
// It takes no privilege. What it does not see: calls other than write(2) that write to a
// file, and a listing of /sys/class or /dev. cmd/supervise is the command for it, and hw, a
// script, runs the repository's tests for adapters under it.
//
// On arm64 our driver has played the script of the differential trace under it, polled and
// trapped, in a machine that QEMU emulates with Debian's kernel. Under qemu-user it cannot:
// that answers ptrace and seccomp with ENOSYS, and the ioctl of verbs too, so that a
// supervisor on the host never sees one.
//
// # Programs of perftest
//
// TestPerftest runs them on both link layers: some rows each time, and with PURERDMA_PERFTEST=all
// every program over sizes, queue pairs, lists, inline data, SRQ, UC, UD, events and 128-byte
// completions, and past the end of an entry's index, at full counts. TestPerftestTrapped is the
// last of these while stores into doorbells are caught.
//
// # Tests of rdma-core's
//
// TestPyverbs runs the tests that rdma-core has of itself, from Debian's python3-pyverbs, on
// libmlx5 and the model: a selection each time, and all with PURERDMA_PYVERBS=all.
// testdata/pyverbs.txt is the list of them, with the results for both link layers and why
// those that are skipped are.
//
// # Memory and time
//
// All state is under one lock of the Model, and memory of programs is read and written
// by process_vm_readv and process_vm_writev, which need no help of theirs. A program that
// ends is noticed by its socket, and what it made is destroyed.
package mlx5model
