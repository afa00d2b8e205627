package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

const (
	addDevice = "for an adapter load its driver (modprobe mlx5_ib), without one make a Soft-RoCE device: " +
		"modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0; package softroce needs neither"
	mountNodes = "in a container pass the nodes in (--device=/dev/infiniband), else load udev's rules (udevadm trigger)"
)

// kernelDevices names the devices that are the kernel's.
func (w *World) kernelDevices() (names []string) {
	for _, d := range w.Devices {
		if d.Driver != "softroce" {
			names = append(names, d.Name)
		}
	}
	return names
}

func devices(w *World) (found []Finding) {
	if w.ListError != nil {
		found = append(found, problem("", "compare with what the kernel lists: rdma dev, ls /sys/class/infiniband", "the list of devices is not complete: %v", w.ListError))
	}
	if len(w.kernelDevices()) == 0 {
		found = append(found, problem("", addDevice, "the kernel shows no RDMA device"))
	}
	for _, d := range w.Devices {
		switch {
		case d.Problem == "":
		case d.Driver == "softroce" && len(w.kernelDevices()) > 0:
			found = append(found, hint(d.Name, "use a device of the kernel", "this one in user space cannot be used beside them: %s", d.Problem))
		default:
			found = append(found, problem(d.Name, "do what the error says, and mend what is found below of nodes and memlock; dmesg has what a kernel's driver says", "it cannot be used: %s", d.Problem))
		}
	}
	return found
}

func (w *World) has(name string) bool {
	_, err := fs.Stat(w.Root, name)
	return err == nil
}

func modules(w *World) (found []Finding) {
	// What is built into the kernel is no module, and has its class all the same.
	for _, m := range []struct{ name, class, what string }{{"ib_core", "infiniband", "RDMA"}, {"ib_uverbs", "infiniband_verbs", "verbs for programs"}} {
		if !w.has("sys/module/"+m.name) && !w.has("sys/class/"+m.class) {
			found = append(found, problem(m.name, "modprobe "+m.name, "the kernel has no %s: the module is not loaded", m.what))
		}
	}
	return found
}

var someNodes = subject{"there is no device that could have a node", func(w *World) bool { return len(w.uverbs()) > 0 }}

// uverbs is the names of the nodes that the kernel's devices should have.
func (w *World) uverbs() (names []string) {
	entries, _ := fs.ReadDir(w.Root, "sys/class/infiniband_verbs")
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "uverbs") { // not abi_version
			names = append(names, e.Name())
		}
	}
	return names
}

func nodes(w *World) (found []Finding) {
	for _, node := range w.uverbs() {
		name := "/dev/infiniband/" + node
		if !w.has(name[1:]) {
			found = append(found, problem(name, mountNodes, "the node is missing, though the kernel has the device"))
			continue
		}
		if err := w.CanUse(name[1:]); err != nil {
			found = append(found, problem(name, "give this user the right: a udev rule with MODE=\"0666\", or the node's group",
				"this process may not open it: %v", err))
		}
	}
	return found
}

// enoughMemLock is what a few connections with their buffers lock.
const enoughMemLock = 1 << 30

func memlock(w *World) []Finding {
	const more = "ulimit -l unlimited; LimitMEMLOCK=infinity in a service; --ulimit memlock=-1 for a container"
	switch {
	case w.Privileged || w.MemLock >= enoughMemLock:
		return nil
	case w.MemLock < 8<<20:
		return []Finding{problem("", more, "this process may lock %d KiB, too little for buffers of a few MiB", w.MemLock>>10)}
	}
	return []Finding{hint("", more, "this process may lock %d MiB", w.MemLock>>20)}
}

func namespaces(w *World) []Finding {
	switch w.Namespaces {
	case "shared":
		return nil
	case "exclusive":
		return []Finding{hint("", "rdma system set netns shared, or move the device: rdma dev set NAME netns PID",
			"each RDMA device belongs to one network namespace; others do not see it")}
	}
	return []Finding{unknown("", "the kernel does not tell the mode of network namespaces")}
}

// enoughShm is NCCL's buffers for some dozen connections, 10 MB each.
const enoughShm = 512 << 20

func shm(w *World) []Finding {
	const more = "--shm-size=8g or --ipc=host for a container; mount -o remount,size=8g /dev/shm"
	switch {
	case w.ShmSize == 0:
		return []Finding{hint("/dev/shm", "mount -t tmpfs tmpfs /dev/shm", "there is none; transports by shared files do not work")}
	case w.ShmSize < enoughShm:
		return []Finding{hint("/dev/shm", more, "it has %d MiB; a connection by files takes about 10", w.ShmSize>>20)}
	}
	return nil
}

func hugePages(w *World) []Finding {
	b, err := fs.ReadFile(w.Root, "proc/meminfo")
	if err != nil {
		return []Finding{unknown("/proc/meminfo", "%v", err)}
	}
	for line := range strings.Lines(string(b)) {
		var n int
		if _, err := fmt.Sscanf(line, "HugePages_Total: %d", &n); err != nil {
			continue
		}
		if n > 0 {
			return nil
		}
		return []Finding{hint("", "sysctl vm.nr_hugepages=512", "none is set aside; large buffers register faster in huge pages")}
	}
	return []Finding{unknown("/proc/meminfo", "the kernel does not tell of huge pages")}
}

func gpuDirect(w *World) (found []Finding) {
	gpus := w.pciOfClass("0x03", "0x10de")
	if len(gpus) == 0 || len(w.kernelDevices()) == 0 {
		return nil
	}
	loaded := w.has("sys/module/nvidia_peermem") || w.has("sys/kernel/mm/memory_peers/nv_mem/version")
	dmaBuf := false
	for _, d := range w.Devices {
		if d.Attr != nil && !d.Software && d.Attr.Features["DMA-BUF registration"] == "" {
			dmaBuf = true
		}
	}
	if !loaded && !dmaBuf {
		found = append(found, problem("", "modprobe nvidia_peermem, or Linux 5.12 with NVIDIA's open kernel modules for DMA-BUF",
			"neither peer memory nor DMA-BUF is there: data of GPUs is staged through host memory"))
	}
	return found
}

// gpuSharing looks for the control daemon of MPS. Without it processes take turns on a GPU.
func gpuSharing(w *World) []Finding {
	if len(w.pciOfClass("0x03", "0x10de")) == 0 {
		return nil
	}
	dir := w.MPSPipe
	if dir == "" {
		dir = "tmp/nvidia-mps"
	}
	if w.has(path.Join(dir, "control")) {
		return nil
	}
	return []Finding{hint("", "nvidia-cuda-mps-control -d, if ranks are to share a GPU",
		"processes take turns on a GPU: kernels that wait for another process's lose milliseconds, so ranks that share one move data by copies")}
}

// pciOfClass is the folders of PCI devices whose class begins so, of one vendor.
func (w *World) pciOfClass(class, vendor string) (dirs []string) {
	entries, _ := fs.ReadDir(w.Root, "sys/bus/pci/devices")
	for _, e := range entries {
		dir := path.Join("sys/bus/pci/devices", e.Name())
		if strings.HasPrefix(w.word(dir, "class"), class) && (vendor == "" || w.word(dir, "vendor") == vendor) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func (w *World) word(dir, file string) string {
	b, err := fs.ReadFile(w.Root, path.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
