// Package topo is how the devices of a machine reach each other: the tree of PCI
// bridges, the NUMA nodes and the links between GPUs, and for any two devices the
// path between them by the words of NCCL and of nvidia-smi topo -m.
//
// Read looks at sysfs once. It needs no rights, opens no device and loads no
// library; what it cannot read of one device it says in the error and goes on. GPUs
// are found there too; which of them this process may use, and their NVLinks, a
// driver of package gpu tells (AddGPUs).
package topo
