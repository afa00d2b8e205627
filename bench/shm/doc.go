// Command shm measures messages through shared memory (package shmtransport) between two processes on two processors, against what the
// machine can do, and against UCX (ucx_perftest), Open MPI (vader) and libfabric (fi_pingpong) in the same run.
//
//	bench/shm/run [--rounds 20] [--rivals ucx,openmpi] [--json]
//
// The script run beside this file installs them first, as root, where they are missing.
//
// # What is measured
//
// Through the public API: half a round trip, and a stream that ends with the receiver's answer, of 8 B, 4 KiB, 64 KiB and 1 MiB; the
// stream of 8 B one by one and in batches of 64. The receiver has the message in its own buffer. The two limits, measured around every
// sample:
//
//   - C is half a round trip of one cache line between the two processors: two lines, plain stores, PAUSE between looks.
//   - M is one copy of the message's size by Go's copy, in steps of at most 512 KiB, from and to memory that is in the caches.
//
// # Near and far
//
// Virtual machines move their processors: the same cache line then takes some 110 or 300 to 500 ns for its round trip, and all else follows. So the
// line is timed right before and right after each sample, and only samples count where both agree within a third; near and far are told
// apart and never mixed. Up to 190 ns is near. Below 90 ns the two processors share a core; those samples are left out.
//
// After a pause processors are slow for some ms, half as fast as later, and after a rival the caches are not as they were. So each sample
// begins when the line takes the same time again and again, and is measured once before in vain, as rivals do.
//
// Each rival runs between two samples of ours, with its shared-memory transport alone, and what counts is the ratio to the mean of these
// two. UCX: tag messages, UCX_TLS=posix,self; its latency is the median that it prints, its bandwidth the average over its run. Open MPI:
// pml ob1, btl vader, by mpi/pair.c, which mpicc compiles. libfabric: provider shm, tagged, half round trips only, of which it prints the
// average.
//
// Targets are told, not enforced: the exit code is 0 when everything ran.
package main
