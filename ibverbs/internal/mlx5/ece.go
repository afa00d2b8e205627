package mlx5

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs"
)

// vendor is whose options of connection establishment the device's are (PCI_VENDOR_ID_MELLANOX).
const vendor = 0x15b3

// eceVersion1 in uapi.MLX5CreateQP asks for the options that the device has to offer, as
// libmlx5 does. It is in no header.
const eceVersion1 = 1 << 28

var errNoECE = &driver.NotSupportedError{Feature: driver.FeatureECE, By: driver.LacksDevice}

// SetECE implements driver.ECEQP. The options go to the device with the next change of
// the QP.
func (q *QP) SetECE(e driver.ECE) error {
	switch {
	case !q.dev.ece:
		return errNoECE
	case e.CompMask != 0:
		return hint(syscall.EINVAL, "the component mask is %#x, the device takes 0", e.CompMask)
	case e.Vendor != vendor && (e.Vendor != 0 || e.Options != 0):
		return hint(syscall.EINVAL, "the options are of vendor %#x, the device is of %#x", e.Vendor, vendor)
	}
	q.eceAsked, q.eceInUse = e.Options, 0
	return nil
}

// QueryECE implements driver.ECEQP.
func (q *QP) QueryECE() (driver.ECE, error) {
	if !q.dev.ece {
		return driver.ECE{}, errNoECE
	}
	return driver.ECE{Vendor: vendor, Options: q.eceInUse}, nil
}

// change modifies the kernel's QP, and agrees on the options that SetECE asked for.
func (q *QP) change(a *driver.QPAttr, mask driver.QPMask) error {
	if q.eceAsked == 0 {
		return q.dev.Dev.ModifyQP(q.h, a, mask)
	}
	req := uapi.MLX5ModifyQP{ECEOptions: q.eceAsked}
	var resp uapi.MLX5ModifyQPResp
	if err := q.dev.Dev.ModifyQPWith(q.h, a, mask, uverbs.UHW{In: bytesOf(&req), Out: bytesOf(&resp)}); err != nil {
		return err
	}
	q.eceAsked, q.eceInUse = 0, resp.ECEOptions
	return nil
}
