package mr

import (
	"errors"
	"fmt"
	"syscall"
)

var (
	errNoBytes  = fmt.Errorf("memory of no bytes: %w", syscall.EINVAL)
	errHugeFile = fmt.Errorf("pages of a file are those of its file system: %w", syscall.EINVAL)
)

func bytesOf(n int) string { return fmt.Sprintf("%d bytes", n) }

// mapHint is what to do about an errno of mmap or madvise.
func mapHint(hugePage int, err error) string {
	switch {
	case errors.Is(err, syscall.ENOMEM) && hugePage != 0:
		return fmt.Sprintf("reserve pages of %d KiB: sysctl vm.nr_hugepages, or nr_hugepages in /sys/kernel/mm/hugepages/hugepages-%dkB; see also the hugetlb limit of the cgroup",
			hugePage>>10, hugePage>>10)
	case errors.Is(err, syscall.ENOMEM):
		return "memory is short, or a limit is reached: ulimit -v, vm.max_map_count, vm.overcommit_memory"
	case errors.Is(err, syscall.EAGAIN):
		return "the process locks all its memory, and the limit of locked memory is reached: ulimit -l, LimitMEMLOCK= of the service"
	case errors.Is(err, syscall.EFAULT):
		return "the file system of the file is full; a container's /dev/shm grows with --shm-size or an emptyDir of medium Memory"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "the descriptor must be open for reading and writing, without F_SEAL_WRITE"
	case errors.Is(err, syscall.ENODEV):
		return "this kind of file cannot be mapped; use a memfd or a file of tmpfs"
	}
	return ""
}
