package uverbs

import (
	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// AttachMulticast makes a UD QP receive what is sent to a group. To attach it
// twice changes nothing.
func (d *Device) AttachMulticast(h QPHandle, g driver.GID, lid uint16) error {
	return d.multicast(uapi.CmdAttachMcast, h, g, lid)
}

// DetachMulticast ends that. EINVAL for a group that the QP is not in.
func (d *Device) DetachMulticast(h QPHandle, g driver.GID, lid uint16) error {
	return d.multicast(uapi.CmdDetachMcast, h, g, lid)
}

func (d *Device) multicast(cmd uint32, h QPHandle, g driver.GID, lid uint16) error {
	req := uapi.AttachMcast{GID: g, QPHandle: uint32(h), MLID: lid}
	return lacks(d.write(cmd, bytesOf(&req), nil, UHW{}), driver.FeatureMulticast, "")
}
