// Package mlx5 drives ConnectX adapters (mlx5_ib, driver id 1): it lays out queues in
// its own memory, writes the entries, rings the doorbells and reads the completions.
// Posting, polling and arming make no system call.
//
// It is tested against a software model validated with libmlx5 (package mlx5model), and
// has never run on mlx5 hardware: order on PCI Express, firmware and time are what the
// model cannot show. Its entries are held against mlx5dv.h too. Devices are therefore
// refused unless Provider.Allowed is set.
//
// # What there is
//
// RC and UC queue pairs with sends, writes, reads, atomics, inline data, immediate data
// and messages that invalidate; UD queue pairs, address handles for InfiniBand and
// Ethernet, multicast; SRQs; memory windows of type 2, which are followed request by
// request (MW); completions of 64 and 128 bytes, events, moderation, resize;
// registrations, of dma-bufs too, and their change; enhanced connection establishment
// (ECE). UAR pages are allocated one by one (Linux 5.7); each QP has a doorbell of its
// own, so no lock is shared. Scatter-to-CQE and signatures are never asked for. A single
// entry is copied into the doorbell register (BlueFlame) if it fits.
//
// # What there is not
//
// Memory windows of type 1, on-demand paging, XRC, DC, raw packets, device memory, time
// stamps, and the mode in which the device takes receives out of order
// (MLX5DV_QP_CREATE_OOO_DP); completions are taken in any order.
//
// # Memory
//
// A queue, its doorbell record and the table of its requests are one mapping outside the
// Go heap, released after the kernel's object is destroyed; that of a QP by Purge, since a
// poll may look at it until then. The record of a CQ is a mapping of its own, as it stays
// when the queue is resized. The order that the device relies on is that of package mmio:
// entry, fence, record, fence, register, fence; and owner of a completion, fence, its
// fields.
package mlx5
