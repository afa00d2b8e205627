package ibverbs

import "github.com/purerdma/purerdma/ibverbs/driver"

// Resources is what is in use of a device: Counts by kind for the whole machine,
// and Objects, each with its process.
type Resources = driver.Resources

// Resource is one object of a device with its owner: Kind, Number, PID, Owner, and
// by kind Port, Type, State, RemoteQPN, Depth, Users, Bytes.
type Resource = driver.Resource

// ResourceKind is a kind of object, by the word of rdma res: "qp" for example.
type ResourceKind = driver.ResourceKind

// Kinds of objects.
const (
	ResourcePD      = driver.ResourcePD
	ResourceCQ      = driver.ResourceCQ
	ResourceQP      = driver.ResourceQP
	ResourceCMID    = driver.ResourceCMID
	ResourceMR      = driver.ResourceMR
	ResourceContext = driver.ResourceContext
	ResourceSRQ     = driver.ResourceSRQ
)

// NodeType is what kind of node a device is (enum ibv_node_type).
type NodeType = driver.NodeType

// Types of nodes. RoCE devices are channel adapters, CA; iWARP's are RNICs.
const (
	NodeUnknown = driver.NodeUnknown
	NodeCA      = driver.NodeCA
	NodeSwitch  = driver.NodeSwitch
	NodeRouter  = driver.NodeRouter
	NodeRNIC    = driver.NodeRNIC
)

// Resources asks the kernel which objects all processes have on the device, without
// opening it. It is a snapshot that the caller owns; the administrator sees the
// objects of all users. Devices that the kernel does not know lack FeatureResources.
func (d *Device) Resources() (Resources, error) {
	name := d.d.Info().Name
	r, ok := d.d.(driver.ResourceReader)
	if !ok {
		return Resources{}, wrap("list objects", name, "", &NotSupportedError{Feature: FeatureResources, By: driver.LacksDriver})
	}
	res, err := r.Resources()
	return res, wrap("list objects", name, "", err)
}

// PKeys is the partition keys of a port, numbered from 1, by index; empty entries
// are 0. The caller owns the slice. Devices that do not tell lack FeaturePKeys.
func (v *device) PKeys(port int) (keys []uint16, err error) {
	if err := v.checkPort("query P_Keys", port); err != nil {
		return nil, err
	}
	err = v.use("query P_Keys", portName(port), func() (err error) {
		r, ok := v.d.(driver.PKeyReader)
		if !ok {
			return &NotSupportedError{Feature: FeaturePKeys, By: driver.LacksDriver}
		}
		keys, err = r.PKeys(port)
		return err
	})
	return keys, err
}

// NetDevice is the net device of a port, numbered from 1, and its index: "" and 0
// for none, and for one in another network namespace. A port has one even without
// GIDs; where the driver does not tell, it is that of the first GID which has one.
func (v *device) NetDevice(port int) (name string, index int, err error) {
	if err := v.checkPort("query net device", port); err != nil {
		return "", 0, err
	}
	err = v.use("query net device", portName(port), func() (err error) {
		if r, ok := v.d.(driver.PortNetDeviceReader); ok {
			name, index, err = r.PortNetDevice(port)
		}
		return err
	})
	if err != nil || name != "" {
		return name, index, err
	}
	gids, err := v.GIDs(port)
	for _, g := range gids {
		if g.NetDev != "" {
			return g.NetDev, g.IfIndex, nil
		}
	}
	return "", 0, err
}
