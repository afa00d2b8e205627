// Package kernel lists the RDMA devices of Linux and gives each to the provider
// of its driver id.
//
// # Finding
//
// RDMA netlink names the devices, their character devices and their driver ids.
// Where it does not answer, sysfs does, less surely: the driver id is then
// derived from the name of the device's kernel driver. An entry that cannot be
// read is left out, with its reason in the error.
//
// # Opening
//
// A Provider is the user space half of one kernel driver, rxe or mlx5. It
// starts from OpenContext, which has what is the same for all of them, and adds
// objects with queues.
//
// # World
//
// All of it looks at the machine through a World, each field of which tests
// replace.
package kernel
