package kernel

import (
	"fmt"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// drivers names enum rdma_driver_id: as rdma-core does, and by the kernel
// drivers whose devices they are.
var drivers = []struct {
	id   uint32
	name string
	mods []string
}{
	{uapi.DriverMLX5, "mlx5", []string{"mlx5_core", "mlx5_core.sf"}},
	{uapi.DriverMLX4, "mlx4", []string{"mlx4_core"}},
	{uapi.DriverCXGB4, "cxgb4", []string{"cxgb4"}},
	{uapi.DriverMTHCA, "mthca", []string{"ib_mthca"}},
	{uapi.DriverBNXTRE, "bnxt_re", []string{"bnxt_en"}},
	{uapi.DriverOCRDMA, "ocrdma", []string{"be2net"}},
	{uapi.DriverIRDMA, "irdma", []string{"ice", "i40e", "idpf"}},
	{uapi.DriverVMWPVRDMA, "vmw_pvrdma", []string{"vmw_pvrdma"}},
	{uapi.DriverQEDR, "qedr", []string{"qede"}},
	{uapi.DriverHNS, "hns", []string{"hns3"}},
	{uapi.DriverUSNIC, "usnic", []string{"usnic_verbs"}},
	{uapi.DriverRXE, "rxe", nil},
	{uapi.DriverHFI1, "hfi1", []string{"hfi1"}},
	{uapi.DriverQIB, "qib", []string{"ib_qib"}},
	{uapi.DriverEFA, "efa", []string{"efa"}},
	{uapi.DriverSIW, "siw", nil},
	{uapi.DriverERDMA, "erdma", []string{"erdma"}},
}

func driverName(id uint32) string {
	for _, d := range drivers {
		if d.id == id {
			return d.name
		}
	}
	return fmt.Sprintf("driver id %d", id)
}

func idOfModule(module string) (uint32, bool) {
	for _, d := range drivers {
		for _, m := range d.mods {
			if m == module {
				return d.id, true
			}
		}
	}
	return 0, false
}
