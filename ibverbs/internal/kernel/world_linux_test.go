package kernel

import (
	"context"
	"encoding/binary"
	"io/fs"
	"syscall"
	"testing/fstest"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
	"github.com/purerdma/purerdma/ibverbs/internal/uverbs/uverbstest"
)

// Device numbers of the nodes of the test world.
const (
	devMLX5 = 231<<8 | 192
	devRXE  = 231<<8 | 193
)

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }
func link(to string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink | 0o777}
}

// testSys is sysfs with a ConnectX and a Soft-RoCE device.
func testSys() fstest.MapFS {
	return fstest.MapFS{
		"class/infiniband_verbs/abi_version":                               file("6"),
		"class/infiniband_verbs/uverbs0/ibdev":                             file("mlx5_0"),
		"class/infiniband_verbs/uverbs0/dev":                               file("231:192"),
		"class/infiniband_verbs/uverbs1/ibdev":                             file("rxe0"),
		"class/infiniband_verbs/uverbs1/dev":                               file("231:193"),
		"class/infiniband/mlx5_0":                                          link("../../devices/pci0000:3a/0000:3b:00.0/infiniband/mlx5_0"),
		"class/infiniband/rxe0":                                            link("../../devices/virtual/infiniband/rxe0"),
		"devices/pci0000:3a/0000:3b:00.0/driver":                           link("../../../bus/pci/drivers/mlx5_core"),
		"devices/pci0000:3a/0000:3b:00.0/numa_node":                        file("1"),
		"bus/pci/drivers/mlx5_core/module":                                 file(""),
		"devices/pci0000:3a/0000:3b:00.0/infiniband/mlx5_0/device":         link("../../../0000:3b:00.0"),
		"devices/pci0000:3a/0000:3b:00.0/infiniband/mlx5_0/fw_ver":         file("16.35.4030"),
		"devices/pci0000:3a/0000:3b:00.0/infiniband/mlx5_0/board_id":       file("MT_0000000008"),
		"devices/pci0000:3a/0000:3b:00.0/infiniband/mlx5_0/node_guid":      file("b859:9f03:00aa:bb10"),
		"devices/pci0000:3a/0000:3b:00.0/infiniband/mlx5_0/sys_image_guid": file("b859:9f03:00aa:bb11"),
		"devices/pci0000:3a/0000:3b:00.0/infiniband/mlx5_0/ports/1/state":  file("4: ACTIVE"),
		"devices/pci0000:3a/0000:3b:00.0/infiniband/mlx5_0/ports/2/state":  file("1: DOWN"),
		"devices/virtual/infiniband/rxe0/parent":                           file("eth0"),
		"devices/virtual/infiniband/rxe0/fw_ver":                           file(""),
		"devices/virtual/infiniband/rxe0/node_guid":                        file("0011:22ff:fe33:4455"),
		"devices/virtual/infiniband/rxe0/sys_image_guid":                   file("0011:22ff:fe33:4455"),
		"devices/virtual/infiniband/rxe0/ports/1/gids/0":                   file("fe80:0000:0000:0000:0011:22ff:fe33:4455"),
		"devices/virtual/infiniband/rxe0/ports/1/gids/1":                   file("0000:0000:0000:0000:0000:ffff:0a09:0001"),
		"devices/virtual/infiniband/rxe0/ports/1/gids/2":                   file("0000:0000:0000:0000:0000:0000:0000:0000"),
		"devices/virtual/infiniband/rxe0/ports/1/gids/3":                   file("fd00:0000:0000:0000:0000:0000:0000:0001"),
		"devices/virtual/infiniband/rxe0/ports/1/gid_attrs/types/0":        file("IB/RoCE v1"),
		"devices/virtual/infiniband/rxe0/ports/1/gid_attrs/types/1":        file("RoCE v2"),
		"devices/virtual/infiniband/rxe0/ports/1/gid_attrs/types/3":        file("RoCE v2"),
		"devices/virtual/infiniband/rxe0/ports/1/gid_attrs/ndevs/0":        file("eth0"),
		"devices/virtual/infiniband/rxe0/ports/1/gid_attrs/ndevs/1":        file("eth0"),
		"devices/virtual/infiniband/rxe0/ports/1/gid_attrs/ndevs/3":        file("eth7"),
	}
}

// nlDevice is a device as RDMA netlink tells of it. A node of "" has none.
type nlDevice struct {
	name, node, fw string
	ports          uint32
	guid           uint64
	dev, id        uint64
	err            error // of GET_CHARDEV
}

func testNetlink() []nlDevice {
	return []nlDevice{
		{name: "rxe0", node: "uverbs1", ports: 1, guid: 0x001122fffe334455, dev: devRXE, id: uapi.DriverRXE},
		{name: "mlx5_0", node: "uverbs0", fw: "16.35.4030", ports: 2, guid: 0xb8599f0300aabb10, dev: devMLX5, id: uapi.DriverMLX5},
	}
}

func append64(b []byte, id uint16, v uint64) []byte {
	return appendAttr(b, id, binary.NativeEndian.AppendUint64(nil, v))
}

// answer is RDMA netlink with these devices.
func answer(devices []nlDevice) func(uint16, bool, []byte) ([][]byte, error) {
	return func(cmd uint16, dump bool, ask []byte) ([][]byte, error) {
		asked, err := parseAttrs(ask)
		if err != nil {
			return nil, err
		}
		switch {
		case cmd == uapi.NLDevCmdGet && dump:
			var msgs [][]byte
			for i, d := range devices {
				m := append32(nil, uapi.NLDevAttrDevIndex, uint32(i))
				m = appendString(m, uapi.NLDevAttrDevName, d.name)
				m = append32(m, uapi.NLDevAttrPortIndex, d.ports)
				m = appendString(m, uapi.NLDevAttrFWVersion, d.fw)
				m = append64(m, uapi.NLDevAttrNodeGUID, d.guid)
				m = append64(m, uapi.NLDevAttrSysImageGUID, d.guid+1)
				msgs = append(msgs, m)
			}
			return msgs, nil
		case cmd == uapi.NLDevCmdGetChardev && !dump && asked.str(uapi.NLDevAttrChardevType) == "uverbs":
			i, ok := asked.num(uapi.NLDevAttrDevIndex)
			if !ok || i >= uint64(len(devices)) {
				return nil, syscall.ENODEV
			}
			d := devices[i]
			if d.err != nil {
				return nil, d.err
			}
			m := appendString(nil, uapi.NLDevAttrChardevName, d.node)
			m = append64(m, uapi.NLDevAttrChardev, d.dev)
			m = append64(m, uapi.NLDevAttrUverbsDriverID, d.id)
			return [][]byte{m}, nil
		}
		return nil, syscall.EOPNOTSUPP
	}
}

func testWorld() (*uverbstest.FakeKernel, World) {
	k := uverbstest.NewFakeKernel(devRXE)
	return k, World{
		Kernel:  k,
		Sys:     testSys(),
		Dev:     fstest.MapFS{"infiniband/uverbs0": file(""), "infiniband/uverbs1": file("")},
		DevDir:  "/dev",
		Netlink: answer(testNetlink()),
		Uevents: func(context.Context, func([]byte)) error { return syscall.EPERM },
		InterfaceName: func(i int) string {
			return map[int]string{2: "eth0", 3: "eth1"}[i]
		},
		NetDevice: func(name string) (string, error) {
			if name == "eth0" {
				return "rxe0", nil
			}
			return "", syscall.ENODEV
		},
	}
}
