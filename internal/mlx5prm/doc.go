// Package mlx5prm is the layouts that ConnectX adapters and their drivers share:
// work queue entries, completions, doorbell records and doorbell registers. It is
// layouts and numbers alone; it posts nothing and runs nothing. The driver and the
// model of the device both build on it, so that a mistake here is found by rdma-core's
// library against the model, and not hidden by both making it.
//
// Names are those of mlx5dv.h of rdma-core, which the tests hold the layouts
// against, and behind it of NVIDIA's Adapters Programmer's Reference Manual (PRM).
// What no public header has (the doorbell registers, the arm word) says so.
//
// Fields are big endian in memory and bytes in Go, so a structure can lie at any
// address and no processor's order matters. The order in which fields reach a device
// is the business of internal/mmio, not of this package.
package mlx5prm
