// Package gdr is GPUDirect RDMA: whether a device may read and write the memory of
// a GPU itself, in which way, and what that takes.
//
// There are three ways, of which Decide takes the first that works:
//
//   - DMA-BUF: the GPU's driver gives a descriptor of the memory and the device's
//     driver registers it. The GPU, its driver, the kernel and the device must
//     all have it.
//   - peer memory: a kernel module (nvidia_peermem) lets the device register the
//     GPU's addresses as if they were the process's own.
//   - staging: neither works, or the two are too far apart in the machine. The
//     data goes through host memory.
//
// The rules are NCCL's (net_ib.cc, ncclIbGdrSupport and ncclIbDmaBufSupport;
// paths.cc, ncclTopoCheckGdr and ncclTopoNeedFlush); in addition the driver's own
// word on the order of writes decides about flushes where it has one. Each decision
// keeps its reason, and no way is left silently for another.
package gdr
