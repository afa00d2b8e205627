package pin

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// To keeps all threads of this process on one processor, and those that they start. unpin takes that back.
func To(cpu int) (unpin func() error, err error) {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	one.Set(cpu)
	if err := pinAll(&one); err != nil {
		return nil, err
	}
	return func() error { return pinAll(&before) }, nil
}

func pinAll(set *unix.CPUSet) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, set); err != nil && err != unix.ESRCH { // a thread that has ended
			return fmt.Errorf("keeping a thread on a processor: %w", os.NewSyscallError("sched_setaffinity", err))
		}
	}
	return nil
}

// Processors is two different ones that this process may use, if there are two.
func Processors() (a, b int, ok bool) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0, 0, false
	}
	var found []int
	for cpu := 0; len(found) < 2 && cpu < len(set)*64; cpu++ {
		if set.IsSet(cpu) {
			found = append(found, cpu)
		}
	}
	if len(found) < 2 {
		return 0, 0, false
	}
	return found[0], found[1], true
}
