package nvidia

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/purerdma/purerdma/gpu"
)

func init() { gpu.Register(driver{}) }

type driver struct{}

func (driver) Name() string { return "nvidia" }

// attributes is CUdevice_attribute.
var attributes = map[gpu.Attribute]uintptr{
	gpu.Multiprocessors: 16, gpu.AsyncEngines: 40, gpu.Integrated: 18, gpu.HasVMM: 102, gpu.HasFDHandles: 103,
	gpu.HasFabricHandles: 128, gpu.HasDMABuf: 124, gpu.GDRSupported: 116, gpu.GDRWithVMM: 110, gpu.GDRFlushOptions: 117,
	gpu.GDRWritesOrdering: 118, gpu.HostNUMANode: 134, gpu.StreamMemOps: 122, gpu.HostRegister: 99, gpu.CanFlushRemoteWrites: 98,
	gpu.SharedByProcesses: 133,
}

const (
	computeMajor = 75
	computeMinor = 76
)

// Attribute is 0 for one that the driver is too old to know, which is to say that
// the device does not have what it asks for.
func (driver) Attribute(device int, a gpu.Attribute) (int, error) {
	l, err := cuda()
	if err != nil {
		return 0, err
	}
	number, known := attributes[a]
	if !known {
		return 0, &gpu.Error{Call: fmt.Sprintf("attribute %d", a), Device: device, Missing: true}
	}
	v, err := l.attribute(device, number)
	if has(err, invalidValue) {
		return 0, nil
	}
	return v, err
}

func (l *library) attribute(device int, number uintptr) (v int, err error) {
	err = l.with(func(f *frame) error {
		w := f.word32()
		err := l.call(cuDeviceGetAttribute, device, "attribute "+strconv.Itoa(int(number)), w.addr, number, uintptr(device))
		v = int(w.get())
		return err
	})
	return v, err
}

func (driver) Devices() ([]gpu.DeviceInfo, error) {
	l, err := cuda()
	if err != nil {
		return nil, err
	}
	var n int
	err = l.with(func(f *frame) error {
		w := f.word32()
		err := l.call(cuDeviceGetCount, -1, "", w.addr)
		n = int(w.get())
		return err
	})
	if err != nil {
		return nil, err
	}
	devices := make([]gpu.DeviceInfo, n)
	for i := range devices {
		if devices[i], err = l.device(i); err != nil {
			return nil, err
		}
	}
	return devices, nil
}

// device asks for one. CUdevice is the index itself.
func (l *library) device(i int) (d gpu.DeviceInfo, err error) {
	d = gpu.DeviceInfo{Index: i, NUMANode: -1}
	dev := uintptr(i)
	err = l.with(func(f *frame) error {
		addr, name := f.room(256)
		if err := l.call(cuDeviceGetName, i, "", addr, uintptr(len(name)), dev); err != nil {
			return err
		}
		d.Name = cstring(name)
		d.MIG = strings.Contains(d.Name, " MIG ")
		addr, uuid := f.room(16)
		if err := l.call(cuDeviceGetUuid, i, "", addr, dev); err != nil {
			return err
		}
		d.UUID = uuidText(uuid, d.MIG)
		addr, bus := f.room(32)
		if err := l.call(cuDeviceGetPCIBusId, i, "", addr, uintptr(len(bus)), dev); err == nil {
			d.PCI, _ = gpu.ParseBusID(cstring(bus)) // one without a PCI address has none
		}
		size := f.word64()
		err := l.call(cuDeviceTotalMem, i, "", size.addr, dev)
		d.Memory = size.get()
		return err
	})
	if err != nil {
		return d, err
	}
	if d.Major, err = l.attribute(i, computeMajor); err != nil {
		return d, err
	}
	if d.Minor, err = l.attribute(i, computeMinor); err != nil {
		return d, err
	}
	if b, err := os.ReadFile("/sys/bus/pci/devices/" + d.PCI.String() + "/numa_node"); err == nil && d.PCI.Valid {
		if node, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			d.NUMANode = node
		}
	}
	return d, nil
}

// uuidText is the form of nvidia-smi.
func uuidText(b []byte, mig bool) string {
	kind := "GPU"
	if mig {
		kind = "MIG"
	}
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", kind, b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

func (driver) CanAccessPeer(device, peer int) (bool, error) {
	l, err := cuda()
	if err != nil {
		return false, err
	}
	var can bool
	err = l.with(func(f *frame) error {
		w := f.word32()
		err := l.call(cuDeviceCanAccessPeer, device, fmt.Sprintf("peer %d", peer), w.addr, uintptr(device), uintptr(peer))
		can = w.get() != 0
		return err
	})
	return can, err
}

// p2pAttribute is a CUdevice_P2PAttribute of two different devices.
func (l *library) p2pAttribute(device, peer int, number uintptr) (v int, err error) {
	err = l.with(func(f *frame) error {
		w := f.word32()
		err := l.call(cuDeviceGetP2PAttribute, device, fmt.Sprintf("peer %d", peer), w.addr, number, uintptr(device), uintptr(peer))
		v = int(w.get())
		return err
	})
	return v, err
}
