package gpu

// Ptr is an address that a device uses.
type Ptr uint64

// Handles that a driver gives. They mean nothing in another Context.
type (
	Stream     uint64 // 0 is the stream that waits for all others; do not use it beside others
	Event      uint64
	Module     uint64
	Function   uint64
	Allocation uint64 // memory without an address, from Create or Import
)

// IPCHandle is legacy shared memory, as it travels to another process.
type IPCHandle [64]byte

// Dim is the extents of a grid or a block; a zero counts as 1.
type Dim struct{ X, Y, Z uint32 }

// Launch is a run of a kernel. Params is the kernel's parameters, packed as the
// driver wants them: each at its natural alignment. They are copied.
type Launch struct {
	F           Function
	Grid, Block Dim
	Shared      int // bytes of dynamic shared memory
	Stream      Stream
	Params      []byte
}

// AddressInfo says what an address is.
type AddressInfo struct {
	Device bool // memory of a device; else of the host, registered or not
	Index  int  // the device, -1 for the host
	Base   Ptr  // of the allocation or registration that it lies in
	Len    int
	// LegacyIPC reports whether IPCHandle works on it.
	LegacyIPC bool
}

// Context is a hold on the primary context of a GPU.
type Context interface {
	// Device is the GPU.
	Device() DeviceInfo
	// Do runs f with calls that need not make the context current each time.
	// They are for f's own goroutine and only until f returns.
	Do(f func(Context) error) error

	Memory
	Sharing
	Streams
	Kernels

	// Close gives back the hold. Memory made through it that is still there is
	// freed. Second calls do nothing.
	Close() error
}

// Memory is allocation and access.
type Memory interface {
	// Alloc gives n bytes, aligned to 256 at least; Free takes them back.
	Alloc(n int) (Ptr, error)
	Free(Ptr) error
	// Granularity is what sizes and offsets of Create and Map are multiples of.
	Granularity() (int, error)
	// Create makes memory without an address that other processes can be given;
	// with rdma also other PCI devices. Release drops it, once it is unmapped
	// everywhere.
	Create(n int, rdma bool) (Allocation, error)
	// CreateHost is the same in pinned host memory of a NUMA node.
	CreateHost(n, node int) (Allocation, error)
	Release(Allocation) error
	// Reserve gives n bytes of address space, aligned to the granularity;
	// Unreserve takes them back when nothing is mapped there.
	Reserve(n int) (Ptr, error)
	Unreserve(p Ptr, n int) error
	// Map puts the whole of a, n bytes, at p, for this device to read and write
	// and for the host if it is host memory. Several lie one after the other in one
	// reservation. Unmap takes n bytes away.
	Map(p Ptr, n int, a Allocation) error
	Unmap(p Ptr, n int) error
	// RegisterHost pins the n bytes of host memory at addr, which is page
	// aligned and not Go memory, and gives the device's address of them.
	RegisterHost(addr uintptr, n int) (Ptr, error)
	UnregisterHost(addr uintptr) error
	// Address says what p is.
	Address(p Ptr) (AddressInfo, error)
	// MemoryInfo is the bytes free and there on the device.
	MemoryInfo() (free, total uint64, err error)
	// ReadFrom copies from the device into b, WriteTo the other way; both return
	// when it is done.
	ReadFrom(b []byte, p Ptr) error
	WriteTo(p Ptr, b []byte) error
}

// Sharing is memory for other processes, other devices and other buses.
type Sharing interface {
	// Export gives a descriptor of a, which the caller closes; the memory lives
	// as long as somebody has it. Import is for the process that got it, and
	// leaves it open.
	Export(a Allocation) (fd int, err error)
	Import(fd int) (Allocation, error)
	// IPCHandle shares memory of Alloc; OpenIPC maps it in another process and
	// CloseIPC unmaps it there. Opening it in the process that exported it
	// fails.
	IPCHandle(p Ptr) (IPCHandle, error)
	OpenIPC(h IPCHandle) (Ptr, error)
	CloseIPC(p Ptr) error
	// DMABuf gives a descriptor of the pages that hold the n bytes from p, and
	// where p lies in it. The caller closes it.
	DMABuf(p Ptr, n int) (fd int, offset uint64, err error)
	// EnablePeer makes all memory of another device of this process reachable;
	// that it is already is no error.
	EnablePeer(peer Context) error
}

// Streams is work in order, and what tells its progress.
type Streams interface {
	// NewStream gives a stream that waits for no other.
	NewStream() (Stream, error)
	CloseStream(Stream) error
	// Synchronize blocks until all work of s is done.
	Synchronize(s Stream) error
	// NewEvent gives a mark without a clock. Record puts it behind all work of s
	// so far; Done asks whether that was reached; Wait makes s wait for it.
	NewEvent() (Event, error)
	CloseEvent(Event) error
	Record(e Event, s Stream) error
	Done(e Event) (bool, error)
	Wait(s Stream, e Event) error
	// Copy moves n bytes between memory of devices and registered host memory.
	Copy(dst, src Ptr, n int, s Stream) error
	// Fill sets n bytes.
	Fill(p Ptr, v byte, n int, s Stream) error
	// WriteWord stores v at p when s gets there, after all it did before;
	// WaitWord holds s until the word at p, as a ring of numbers, has reached v.
	WriteWord(s Stream, p Ptr, v uint32) error
	WaitWord(s Stream, p Ptr, v uint32) error
}

// Kernels is code for the device.
type Kernels interface {
	// Load compiles text (PTX) and gives the functions named. All are on the
	// device when it returns: a kernel that is loaded while another one spins
	// for it would wait for ever. Unload drops the module and its functions.
	Load(text []byte, names ...string) (Module, []Function, error)
	Unload(Module) error
	// Launch enqueues a run and does not wait for it.
	Launch(l Launch) error
}
