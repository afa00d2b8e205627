package mlx5model

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sysfs is the files that libibverbs and package kernel find the device by.
func (c Config) sysfs() map[string]string {
	guid := fmt.Sprintf("%04x:%04x:%04x:%04x", nodeGUID>>48, nodeGUID>>32&0xffff, nodeGUID>>16&0xffff, nodeGUID&0xffff)
	files := map[string]string{
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
		"class/infiniband/mlx5_0/ports/1/link_layer": map[bool]string{false: "InfiniBand", true: "Ethernet"}[c.Ethernet],
		"class/infiniband/mlx5_0/ports/1/pkeys/0":    "0xffff",
		"class/infiniband/mlx5_0/ports/1/phys_state": "5: LinkUp",
	}
	for i, g := range c.gids() {
		var text []string
		for at := 0; at < len(g.GID); at += 2 {
			text = append(text, fmt.Sprintf("%02x%02x", g.GID[at], g.GID[at+1]))
		}
		port := "class/infiniband/mlx5_0/ports/1/"
		files[fmt.Sprintf("%sgids/%d", port, i)] = strings.Join(text, ":")
		files[fmt.Sprintf("%sgid_attrs/types/%d", port, i)] = []string{"IB/RoCE v1", "IB/RoCE v1", "RoCE v2"}[g.GIDType]
	}
	return files
}

// driverLink is where a device's link to its kernel driver lies, and what it says.
const driverLink, driverFolder = "class/infiniband/mlx5_0/device/driver", "../../../bus/pci/drivers/mlx5_core"

// writeTree makes a new folder with these files in sys, and an entry for the device's node
// in dev.
func (c Config) writeTree(root string) error {
	files := map[string]string{"dev/infiniband/uverbs0": ""}
	for name, text := range c.sysfs() {
		files["sys/"+name] = text + "\n"
	}
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return os.Symlink(driverFolder, filepath.Join(root, "sys", filepath.FromSlash(driverLink)))
}
