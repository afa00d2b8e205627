// Package mmio is ordered loads and stores for memory that is shared with a
// device, with the kernel or with another process.
//
// # Why not sync/atomic
//
// Package sync/atomic speaks of goroutines. Three things differ when a device
// is at the other end:
//
//   - On amd64 atomic.Store is XCHG, a read and a locked write. A doorbell
//     register must not be read, and the lock is paid on every post. Here it is
//     a plain MOV, which amd64 keeps in order by itself.
//   - On arm64 the acquire and release of atomic order accesses among
//     processors; a device is in the outer shareable domain and needs DMB OSH….
//   - A compiler may merge or drop plain stores. The stores to devices here are
//     calls, and do happen one by one.
//
// # Which to use
//
// Where the other end is a processor (Soft-RoCE's rings, shared memory between
// processes), StoreRelease publishes what was written before it and LoadAcquire
// sees it. Where it is a device, the doorbell order is: write the entry,
// [OrderStores], write the doorbell record, [StoreFence], [Store64] to the doorbell
// register. [PostWord] does the last four, [PostBlock] the same with a copy of the
// entry. A record that no register comes after has StoreFence before it. Before
// entries that a device wrote are read, the word that says they are there is loaded,
// then comes [LoadFence].
//
// # Pointers
//
// Every pointer is aligned to its size and points outside the Go heap: the race
// detector, which does not follow assembly, ignores such memory.
package mmio
