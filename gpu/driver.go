package gpu

// Driver is one maker's driver. All methods may be called from any goroutine.
type Driver interface {
	// Name is "nvidia" for example.
	Name() string
	// Devices is what this process may use, by index. A machine without a GPU
	// or without its driver gives an error that says which.
	Devices() ([]DeviceInfo, error)
	// Attribute asks for a number of a device.
	Attribute(device int, a Attribute) (int, error)
	// CanAccessPeer reports whether the device reaches the peer's memory
	// directly. A device with itself is the caller's to decide: drivers answer
	// no.
	CanAccessPeer(device, peer int) (bool, error)
	// Open gives a new hold on the device's primary context, which all holds in
	// the process share.
	Open(device int) (Context, error)
}

// Linker is a Driver that knows the links between GPUs.
type Linker interface {
	// Links is the direct links of a device.
	Links(device int) ([]Link, error)
}

// Link is direct links of one kind between a device and one other end.
type Link struct {
	Kind  string // "NVLink"
	To    BusID  // the other end, zero if unknown
	ToGPU bool   // else a switch or a processor
	Count int    // lanes of this kind to that end
}

// Meter is a Driver that counts what crosses the links between GPUs.
type Meter interface {
	// LinkTraffic is what has crossed a device's links so far, in both directions.
	// A driver that has no such count gives an error with Missing set.
	LinkTraffic(device int) (LinkTraffic, error)
}

// LinkTraffic is bytes of payload. The counts only grow, and all programs on the
// machine add to them.
type LinkTraffic struct{ Sent, Received uint64 }

// DeviceInfo is what is known of a device. Index counts the devices that this
// process sees; what names one GPU in all processes is UUID, since indices
// differ by what is hidden from whom, and several instances of one GPU share a
// PCI address.
type DeviceInfo struct {
	Index        int
	Name         string // "NVIDIA H200"
	UUID         string // "GPU-…", "MIG-…" for an instance
	PCI          BusID
	Major, Minor int // compute capability
	Memory       uint64
	MIG          bool
	NUMANode     int // -1 if unknown
}

// Attribute is a number that a driver knows of a device, independent of the
// maker's own code for it.
type Attribute uint8

// Attributes. Those with a question are 0 or 1.
const (
	Multiprocessors      Attribute = iota + 1
	AsyncEngines                   // copies that run beside kernels
	Integrated                     // is the memory the host's?
	HasVMM                         // are there Create and Map?
	HasFDHandles                   // can Export give descriptors?
	HasFabricHandles               // can memory be shared between hosts?
	HasDMABuf                      // can DMABuf give descriptors?
	GDRSupported                   // may other PCI devices reach the memory?
	GDRWithVMM                     // that of Create too?
	GDRFlushOptions                // bit 0: the host can flush, bit 1: streams can
	GDRWritesOrdering              // 0 none, 100 to the owner, 200 to all devices
	HostNUMANode                   // the nearest node of host memory
	StreamMemOps                   // can streams wait for and write 32-bit words?
	HostRegister                   // can RegisterHost?
	CanFlushRemoteWrites           // can streams flush what other devices wrote?
	SharedByProcesses              // do kernels of processes run beside each other (MPS), or in turns?
)

// BusID is a PCI address, which String prints as sysfs does. The zero value is
// none.
type BusID struct {
	Domain                uint32
	Bus, Device, Function uint8
	Valid                 bool
}
