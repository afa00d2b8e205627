package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// chardevUverbs is the type of character device that verbs use.
const chardevUverbs = "uverbs"

// byNetlink lists the devices of this network namespace. err is a failure of
// the whole; broken is those that could not be read.
func (w *World) byNetlink() (nodes []Node, broken []error, err error) {
	msgs, err := w.Netlink(uapi.NLDevCmdGet, true, nil)
	if errors.Is(err, ErrInterrupted) {
		broken = append(broken, fmt.Errorf("RDMA netlink, the list of devices may be incomplete: %w", err))
	} else if err != nil {
		return nil, nil, fmt.Errorf("RDMA netlink: %w", err)
	}
	for _, m := range msgs {
		n, err := w.nodeByNetlink(m)
		switch {
		case err == errVanished:
		case err != nil:
			broken = append(broken, err)
		default:
			nodes = append(nodes, n)
		}
	}
	return nodes, broken, nil
}

// errVanished is a device that went away between two questions.
var errVanished = errors.New("device vanished")

func (w *World) nodeByNetlink(msg []byte) (Node, error) {
	dev, err := parseAttrs(msg)
	if err != nil {
		return Node{}, err
	}
	name := dev.str(uapi.NLDevAttrDevName)
	index, ok := dev.num(uapi.NLDevAttrDevIndex)
	if !ok || index > 1<<31-1 || !validName(name) {
		return Node{}, fmt.Errorf("RDMA netlink: a device without index or name (%q)", name)
	}
	c, err := w.chardev(uint32(index))
	switch {
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.EINVAL) && !w.hasIndex(uint32(index)):
		return Node{}, errVanished
	case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOENT):
		return Node{}, noUverbs(name)
	case err != nil:
		return Node{}, fmt.Errorf("%s: character device by RDMA netlink: %w", name, err)
	}
	node := c.str(uapi.NLDevAttrChardevName)
	devnum, haveDev := c.num(uapi.NLDevAttrChardev)
	id, haveID := c.num(uapi.NLDevAttrUverbsDriverID)
	if !validName(node) || !haveDev || !haveID || id > 1<<32-1 {
		return Node{}, fmt.Errorf("%s: RDMA netlink tells no node, device number or driver id", name)
	}
	ports, _ := dev.num(uapi.NLDevAttrPortIndex)
	n := w.node(name, node, uint32(id))
	n.Dev = devnum
	n.Info.Index = int(index)
	if t, ok := dev.num(uapi.NLDevAttrDevNodeType); ok {
		n.Info.NodeType = driver.NodeType(t)
	}
	n.Info.Ports = int(min(ports, maxPorts))
	n.Info.Firmware = dev.str(uapi.NLDevAttrFWVersion)
	n.Info.NodeGUID, _ = dev.num(uapi.NLDevAttrNodeGUID)
	n.Info.SysGUID, _ = dev.num(uapi.NLDevAttrSysImageGUID)
	return n, nil
}

// hasIndex reports whether a device is still there. Linux answers EINVAL to questions
// about one that is not, as it does to much else.
func (w *World) hasIndex(index uint32) bool {
	_, err := w.Netlink(uapi.NLDevCmdGet, false, append32(nil, uapi.NLDevAttrDevIndex, index))
	return !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENODEV)
}

// chardev asks for the node of a device. ENOENT stands for an empty answer.
func (w *World) chardev(index uint32) (attrs, error) {
	ask := appendString(nil, uapi.NLDevAttrChardevType, chardevUverbs)
	msgs, err := w.Netlink(uapi.NLDevCmdGetChardev, false, append32(ask, uapi.NLDevAttrDevIndex, index))
	if err != nil {
		return nil, err
	}
	if len(msgs) == 0 {
		return nil, syscall.ENOENT
	}
	return parseAttrs(msgs[0])
}

// attrs is the attributes of a netlink message by type. Of repeated ones the
// last counts.
type attrs map[uint16][]byte

var errAttr = errors.New("RDMA netlink: an attribute is longer than its message")

func parseAttrs(b []byte) (attrs, error) {
	as := attrs{}
	err := eachAttr(b, func(id uint16, v []byte) error { as[id] = v; return nil })
	if err != nil {
		return nil, err
	}
	return as, nil
}

// eachAttr calls f with each attribute, repeated ones too, until it fails.
func eachAttr(b []byte, f func(id uint16, v []byte) error) error {
	const hdr, typeMask = 4, 0x3fff // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
	for len(b) >= hdr {
		n := int(binary.NativeEndian.Uint16(b))
		if n < hdr || n > len(b) {
			return errAttr
		}
		if err := f(binary.NativeEndian.Uint16(b[2:])&typeMask, b[hdr:n]); err != nil {
			return err
		}
		b = b[min(len(b), (n+3)&^3):]
	}
	return nil
}

// str is a string without the zero byte that ends it.
func (as attrs) str(id uint16) string {
	v := as[id]
	for i, c := range v {
		if c == 0 {
			return string(v[:i])
		}
	}
	return string(v)
}

// num is an unsigned number of any size.
func (as attrs) num(id uint16) (v uint64, ok bool) {
	switch b := as[id]; len(b) {
	case 1:
		return uint64(b[0]), true
	case 2:
		return uint64(binary.NativeEndian.Uint16(b)), true
	case 4:
		return uint64(binary.NativeEndian.Uint32(b)), true
	case 8:
		return binary.NativeEndian.Uint64(b), true
	}
	return 0, false
}

func appendAttr(b []byte, id uint16, v []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(v)))
	b = binary.NativeEndian.AppendUint16(b, id)
	b = append(b, v...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func appendString(b []byte, id uint16, s string) []byte {
	return appendAttr(b, id, append([]byte(s), 0))
}

func append32(b []byte, id uint16, v uint32) []byte {
	return appendAttr(b, id, binary.NativeEndian.AppendUint32(nil, v))
}
