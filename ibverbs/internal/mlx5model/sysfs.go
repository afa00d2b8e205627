package mlx5model

import (
	"fmt"
	"os"
	"path/filepath"
)

// sysfs is the files that libibverbs and package kernel find the device by.
func sysfs() map[string]string {
	guid := fmt.Sprintf("%04x:%04x:%04x:%04x", nodeGUID>>48, nodeGUID>>32&0xffff, nodeGUID>>16&0xffff, nodeGUID&0xffff)
	return map[string]string{
		"class/infiniband_verbs/abi_version":         "6",
		"class/infiniband_verbs/uverbs0/ibdev":       "mlx5_0",
		"class/infiniband_verbs/uverbs0/dev":         fmt.Sprintf("%d:%d", deviceMajor, deviceMinor),
		"class/infiniband_verbs/uverbs0/abi_version": "1",
		"class/infiniband/mlx5_0/node_type":          "1: CA",
		"class/infiniband/mlx5_0/node_guid":          guid,
		"class/infiniband/mlx5_0/sys_image_guid":     guid,
		"class/infiniband/mlx5_0/fw_ver":             fmt.Sprintf("%d.%d.%d", fwMajor, fwMinor, fwSub),
		"class/infiniband/mlx5_0/board_id":           "MT_0000000223",
		"class/infiniband/mlx5_0/hca_type":           "MT4123",
		"class/infiniband/mlx5_0/device/modalias":    fmt.Sprintf("pci:v000015B3d%08Xsv000015B3sd00000006bc02sc07i00", partID),
		"class/infiniband/mlx5_0/device/vendor":      "0x15b3",
		"class/infiniband/mlx5_0/device/device":      fmt.Sprintf("%#x", partID),
		"class/infiniband/mlx5_0/device/numa_node":   "-1",
		"class/infiniband/mlx5_0/ports/1/state":      "4: ACTIVE",
		"class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand",
		"class/infiniband/mlx5_0/ports/1/pkeys/0":    "0xffff",
		"class/infiniband/mlx5_0/ports/1/phys_state": "5: LinkUp",
		"class/infiniband/mlx5_0/ports/1/gids/0":     fmt.Sprintf("fe80:0000:0000:0000:%s", guid),
	}
}

// writeSysfs makes these files in a new folder.
func writeSysfs(root string) error {
	for name, text := range sysfs() {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}
