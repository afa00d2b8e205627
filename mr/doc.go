// Package mr is memory for RDMA: buffers off the Go heap, and a cache of their
// registrations.
//
// # Why not []byte
//
// A device that was told an address keeps using it, whatever the collector
// does, and a peer may write into registered memory to which no Go reference is
// left. So only a [Buffer] can be registered, and a Buffer never lies on the Go
// heap or a stack: its Span cannot be made outside this module. A program that
// tries to register a []byte does not compile.
//
// # Where a Buffer comes from
//
// [Alloc] maps zeroed memory. [MapFile] maps a file of the caller's: a memfd, a
// file in /dev/shm or in hugetlbfs. [Foreign] takes memory that another library
// mapped, CUDA's pinned memory for one; nobody can check that pointer, and the
// caller's import of unsafe is the promise that it is not Go memory.
//
// # Who frees
//
// Close does, and nothing else: the collector unmaps nothing. The pages go when
// the Buffer, its slices and all MRs of it are closed, in any order. A []byte
// from Bytes, or a [View], keeps nothing mapped and must not be used after
// that. A Buffer that was dropped without Close is reported at debug level.
//
// # Huge pages
//
// Alloc asks for transparent huge pages by itself. [WithHugePages] demands
// reserved ones and fails where there are none; [WithHugePagesIfAvailable] falls
// back to ordinary pages, logs it, and says why in [Buffer.WhyOrdinaryPages].
package mr
