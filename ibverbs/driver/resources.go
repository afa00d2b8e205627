package driver

// Resource is one RDMA object of a device, of whatever process, as the kernel
// accounts for it. Fields that its kind does not have are 0.
type Resource struct {
	Kind   ResourceKind
	Number uint32 // of QP, CQ, MR, PD, SRQ or context; 0 if the kernel does not tell
	// PID is the process that owns it, whichever of its threads made it; 0 for the
	// kernel itself, and (with Owner "") where the thread that made it has ended.
	PID int
	// Owner is the process's name, or the part of the kernel.
	Owner     string
	Port      int     // of a QP
	Type      string  // of a QP, "RC" for example
	State     QPState // of a QP
	RemoteQPN uint32  // of a QP
	Depth     int     // of a CQ
	Users     int     // of a CQ or PD
	Bytes     uint64  // of an MR
}

// ResourceKind is a kind of object, by the word of rdma res.
type ResourceKind string

// Kinds of objects.
const (
	ResourcePD      ResourceKind = "pd"
	ResourceCQ      ResourceKind = "cq"
	ResourceQP      ResourceKind = "qp"
	ResourceCMID    ResourceKind = "cm_id"
	ResourceMR      ResourceKind = "mr"
	ResourceContext ResourceKind = "ctx"
	ResourceSRQ     ResourceKind = "srq"
)

// Resources is what is in use of a device. Counts is by kind, of the whole
// machine; Objects is the objects that this process may see, which is all of
// them for the administrator.
type Resources struct {
	Counts  map[ResourceKind]int
	Objects []Resource
	// Partial is true if the objects changed all the while they were being read, so
	// that some may be missing.
	Partial bool
}

// ResourceReader is a Device whose objects are accounted for. Others lack
// FeatureResources.
type ResourceReader interface {
	// Resources asks now. Several goroutines may.
	Resources() (Resources, error)
}

// PKeyReader is a Context that knows the partitions of its ports. Others lack
// FeaturePKeys.
type PKeyReader interface {
	// PKeys is the port's table of partition keys, by index, empty entries as 0.
	PKeys(port int) ([]uint16, error)
}

// PortNetDeviceReader is a Context that knows the net devices of its ports, of
// which GIDs tell only where there are GIDs.
type PortNetDeviceReader interface {
	// PortNetDevice is the port's net device: "" and 0 if there is none in this
	// network namespace.
	PortNetDevice(port int) (name string, index int, err error)
}
