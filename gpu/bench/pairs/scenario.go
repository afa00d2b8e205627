//go:build linux

package main

// way is how the memory of a connection is shared, by NCCL's name.
type way struct {
	Name      string
	Processes bool // each rank is one
	NoCUMEM   bool
}

var ways = []way{{Name: "DIRECT"}, {Name: "CUMEM", Processes: true}, {Name: "IPC", Processes: true, NoCUMEM: true}}

// scenario is ranks on GPUs, connected in one way.
type scenario struct {
	Way     way
	Read    bool  // receivers fetch; else senders store
	Devices []int // of the ranks
	Each    bool  // pairs are also measured one by one
}

// scenarios are all numbers of ranks that fit on so many GPUs, in every way and mode. Two ranks share a GPU that is alone. Pairs are
// measured one by one where all GPUs take part.
func scenarios(gpus int) (all []scenario) {
	var sets [][]int
	for n := 2; n <= gpus; n++ {
		sets = append(sets, firstDevices(n))
	}
	if gpus == 1 {
		sets = [][]int{{0, 0}}
	}
	for i, devices := range sets {
		for _, w := range ways {
			for _, read := range []bool{false, true} {
				all = append(all, scenario{Way: w, Read: read, Devices: devices, Each: i == len(sets)-1})
			}
		}
	}
	return all
}

func firstDevices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// shared tells that ranks have a GPU in common.
func (s scenario) shared() bool {
	seen := map[int]bool{}
	for _, d := range s.Devices {
		if seen[d] {
			return true
		}
		seen[d] = true
	}
	return false
}

func (s scenario) mode() string {
	if s.Read {
		return "read"
	}
	return "write"
}
