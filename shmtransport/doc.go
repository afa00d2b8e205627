// Package shmtransport moves messages between two processes of one host through shared memory, without a system call for a message and
// without allocating: half a round trip of 8 bytes takes little more than the processors need to pass one cache line.
//
//	l, err := shmtransport.Listen("")           // one process
//	c, err := l.Accept(ctx)
//
//	c, err := shmtransport.Dial(ctx, addr)      // the other; addr is l.Addr()
//	err = c.Send(ctx, []byte("hello"))          // a message, of any size; Recv gets it whole
//	n, err := c.Recv(ctx, buf)
//
// Messages arrive in order, once and whole, or the connection is over. One goroutine at a time uses a [Conn]; [Conn.Split] gives each
// direction an end for a goroutine of its own.
//
// # Memory
//
// The process that dials makes a memfd, reserves its pages, so that a lack of memory is an error and not a fault later, seals its size,
// and passes it over the Unix socket. It has no name: however the processes end, nothing is left. The socket stays open, and its end is
// how either learns of the other's, at once and also after kill -9. Both sides ask the kernel for the other's user (SO_PEERCRED) and
// refuse any but their own, or those of [WithUsers]. Containers reach each other where they share a network namespace (abstract names)
// or a directory (paths).
//
// Where no socket can be shared, [MakeFile] and [AttachFile] do the same with a file in /dev/shm, named as NCCL names its own. Files
// cannot be sealed: there the peer, a process of the same user, is trusted not to make the file shorter.
//
// # Ring
//
// Each direction is a ring of cells, 16 bytes each, and a ring of data. A cell holds 8 bytes and the word that says that they are
// there, which is stored last and has the cell's number in it, so that the receiver polls one word and needs no other. Messages of up to
// 32 bytes lie in cells, at most one cache line. Larger ones lie in data, in parts of some KiB on which sender and receiver work at the
// same time, with a cell for each. What the receiver has read it tells a quarter of the ring at a time.
//
// Three things make it fast; bench/shm measures what comes of them:
//
//   - Owning ahead. Who stores into a line that another core has waits for it. While a Conn waits for the answer to a message it stores a
//     word into the free lines that the next message will fill ([Sender.Prepare]).
//   - A ring of twice the second-level cache. Lines that are still modified in the other core's second-level cache are slow to read; in a
//     ring this large most have moved on to the cache that both share.
//   - Going past the caches to a distant core. Where a cache line takes long from core to core, large messages are faster by stores that
//     bypass the caches, and where it does not, slower. The receiver times the transfer of a line now and then and tells the sender.
//     Such a store waits while any cache has the line. So instead of owning lines ahead the sender evicts them, and the receiver those
//     of small messages that it has read, while they wait: that takes a third off a message of 4 KiB. Of these the receiver reads both
//     halves at once, a line of either at a time, which takes off another tenth, in a stream too.
//     Virtual processors move, so this may change while a connection lives.
//
// # Tried between distant cores
//
// What was of no help between distant cores of a Zen 5, measured in turns with what is here.
//
// Half a round trip of 4 KiB, in C, before both halves were read at once (710 ns; through the caches, owned: 1150):
//
//   - reading with prefetches (1260), lines that are still in the caches in two streams (1130) or downwards (920);
//   - owning by PREFETCHW (1230), evicting without going past the caches (830), going past without evicting (900);
//   - evicting on the receiver's side alone (890), or each line right after it is read (1040);
//   - half of the lines past the caches, half owned (930); two parts (960); lines of 56 bytes and a number, which need no fence (1340);
//   - MOVDIRI for the cell (1230), PREFETCHW of its line before the fence.
//
// The same since (620 ns, and 300 in a stream; read in order 690 and 340):
//
//   - reading four quarters at once (710), by registers of 32 bytes (660) or 16 (710), with PREFETCHNTA (690);
//   - prefetching the next message once its cell is there (620, in a stream 310), a PAUSE before each look (640);
//   - PREFETCHW of the cell's line before the message (720), stores of 64 bytes past the caches (680).
//
// Of a stream's 300 ns the sender takes 100 to store 4 KiB and 170 until SFENCE has seen them in memory.
//
// Long messages (64 KiB 3.3 µs, in a stream 2.2; 1 MiB 33):
//
//   - evicting (64 KiB 4.9, 1 MiB 62); CLWB, CLFLUSHOPT or MOVDIR64B after or instead of the stores; stores of 64 bytes past the caches;
//   - prefetches 2 KiB ahead (64 KiB 3.1, but in a stream 2.3), both halves at once (in a stream 2.6), first parts of 4 or 8 KiB (3.5);
//   - rings smaller or larger than 2 MiB.
//
// # Waiting
//
// Whoever waits looks for some 50 µs, yielding to other goroutines, then sleeps in the kernel (futex) on a word of the shared memory, and
// costs next to no processor time until the other side wakes it: it looks once a second. Meanwhile it holds a thread. A goroutine that is
// locked to its thread (runtime.LockOSThread) yields slowly: do not lock it. The other side looks at that word after each message. The
// order of its two accesses would take a fence for each message; instead whoever goes to sleep makes it for both
// (membarrier). Where the kernel has no such call both sides take the fence. The order of the steps is explored exhaustively by a test.
//
// # Behind package transport
//
// [Transport] is SHM for package transport. Its connectors share NCCL's layout, SendMem, RecvMem and the buffers of the protocols, for
// ends that a GPU reads or writes, and where neither rank has a GPU a ring beside it. With Config.GPU the layout is registered with the
// rank's GPU: GPUs that do not reach each other's memory meet in the host's. A rank without a GPU whose peer has one moves its part by
// package transport/hostend.
//
// # Trust
//
// The other process is of an allowed user, and not trusted further: it may write anything anywhere in the shared memory at any time. Each
// word of it is read once, checked, then used; what cannot be ends the connection with [ErrProtocol]. It can make this side wait, which
// a context ends, or work without need; not read or write beyond the ring.
package shmtransport
