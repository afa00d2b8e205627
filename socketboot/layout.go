package socketboot

import (
	"fmt"
	"strconv"
	"strings"
)

// Layout names the bytes that a range of NCCL versions exchanges. The zero value is [Layout225], and a later layout has a
// greater value, so "from 2.29.2 on" is l >= Layout229. Both ends must use the same one: NCCL refuses mixed versions in a
// job, but not on this connection.
type Layout uint8

// The layouts by the NCCL versions that have them. [LayoutFor] finds the one of a version. Older versions, to 2.23.4, exchange
// no device list and are not supported.
const (
	Layout225  Layout = iota // 2.24.3 to 2.25.1
	Layout226                // 2.26.2 to 2.26.6: traffic class and service level are exchanged
	Layout227                // 2.27.3 to 2.28.9: longer device names
	Layout229                // 2.29.2 and 2.29.3: the bytes of Layout227, immediate data in network order
	Layout2297               // 2.29.7: queue pairs for port failover, completion records
	Layout230                // 2.30.3 to 2.30.7: up to 8 devices, wider CTS entries
	layouts    int    = iota
)

// MaxQPs is the number of queue pairs that the metadata of every layout has room for, NCCL_IB_MAX_QPS.
const MaxQPs = 128

const (
	qpInfoLen  = 24
	devInfoLen = 56
	helloLen   = 12 // magic and socket type
	readyLen   = 4
)

// shape is a row of the table: lengths and offsets in bytes.
type shape struct {
	first, last    version
	maxDevs        int
	devList        int
	metadata       int
	resiliency     int // number of qpInfo entries for port failover, at qpInfoLen*MaxQPs
	devs           int
	name, nameLen  int
	fifoAddr       int
	ndevs          int
	tc, sl         int // 0 = not there
	immBigEndian   bool
	completionRecs bool
}

var shapes = [layouts]shape{
	Layout225: {first: version{2, 24, 3}, last: version{2, 25, 1}, maxDevs: 4, devList: 20, metadata: 3576,
		devs: 3072, name: 3296, nameLen: 260, fifoAddr: 3560, ndevs: 3568},
	Layout226: {first: version{2, 26, 2}, last: version{2, 26, 6}, maxDevs: 4, devList: 20, metadata: 3584,
		devs: 3072, name: 3296, nameLen: 260, fifoAddr: 3560, ndevs: 3568, tc: 3572, sl: 3576},
	Layout227: {first: version{2, 27, 3}, last: version{2, 28, 9}, maxDevs: 4, devList: 20, metadata: 3648,
		devs: 3072, name: 3296, nameLen: 324, fifoAddr: 3624, ndevs: 3632, tc: 3636, sl: 3640},
	Layout229: {first: version{2, 29, 2}, last: version{2, 29, 3}, maxDevs: 4, devList: 20, metadata: 3648,
		devs: 3072, name: 3296, nameLen: 324, fifoAddr: 3624, ndevs: 3632, tc: 3636, sl: 3640, immBigEndian: true},
	Layout2297: {first: version{2, 29, 7}, last: version{2, 29, 7}, maxDevs: 4, devList: 20, metadata: 3744, resiliency: 4,
		devs: 3168, name: 3392, nameLen: 324, fifoAddr: 3720, ndevs: 3728, tc: 3732, sl: 3736, immBigEndian: true, completionRecs: true},
	Layout230: {first: version{2, 30, 3}, last: version{2, 30, 7}, maxDevs: 8, devList: 37, metadata: 4576, resiliency: 16,
		devs: 3456, name: 3904, nameLen: 648, fifoAddr: 4552, ndevs: 4560, tc: 4564, sl: 4568, immBigEndian: true, completionRecs: true},
}

// LayoutFor returns the layout of an NCCL version, written "2.25.1", "v2.25.1" or "2.25.1-1". A version of which nobody has
// recorded the bytes is an error that names the nearest known ones.
func LayoutFor(ncclVersion string) (Layout, error) {
	v, err := parseVersion(ncclVersion)
	if err != nil {
		return 0, err
	}
	if v.less(shapes[0].first) {
		return 0, fmt.Errorf("socketboot: NCCL %s is not supported: before %s no device list was exchanged", ncclVersion, shapes[0].first)
	}
	for l := range Layout(layouts) {
		switch s := l.shape(); {
		case !v.less(s.first) && !s.last.less(v):
			return l, nil
		case v.less(s.first):
			return 0, fmt.Errorf("socketboot: layout of NCCL %s is not known; its neighbours are those of %s and %s", ncclVersion, l-1, l)
		}
	}
	return 0, fmt.Errorf("socketboot: layout of NCCL %s is not known; the newest known is that of %s", ncclVersion, Layout(layouts-1))
}

// String returns the range of NCCL versions, "2.24.3-2.25.1".
func (l Layout) String() string {
	if !l.valid() {
		return fmt.Sprintf("Layout(%d)", uint8(l))
	}
	s := l.shape()
	if s.first == s.last {
		return s.first.String()
	}
	return s.first.String() + "-" + s.last.String()
}

// MaxDevs is the number of devices that a logical NIC can have, which is also the number of keys in a CTS entry: 4 or 8.
func (l Layout) MaxDevs() int { return l.shape().maxDevs }

// DevListLen is the length of the device list in bytes.
func (l Layout) DevListLen() int { return l.shape().devList }

// MetadataLen is the length of the metadata in bytes.
func (l Layout) MetadataLen() int { return l.shape().metadata }

// HasTrafficClass tells whether the metadata carries traffic class and service level.
func (l Layout) HasTrafficClass() bool { return l.shape().tc != 0 }

// ImmBigEndian tells whether immediate data goes over the wire most significant byte first. Older versions of NCCL hand their
// number to the device in host order, so it arrives with its bytes reversed.
func (l Layout) ImmBigEndian() bool { return l.shape().immBigEndian }

// CompletionRecords tells whether a slot of the receiver's sizes FIFO is a completion record of 160 bytes, the 8 sizes and 128
// flags, and not the 8 sizes of 32 bytes alone.
func (l Layout) CompletionRecords() bool { return l.shape().completionRecs }

func (l Layout) valid() bool { return int(l) < layouts }

// shape panics for a Layout that none of the constants names, as an index out of range does.
func (l Layout) shape() *shape { return &shapes[l] }

func (l Layout) check() error {
	if !l.valid() {
		return fmt.Errorf("socketboot: no such layout: %d", uint8(l))
	}
	return nil
}

type version [3]uint8

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

func (v version) less(o version) bool {
	for i := range v {
		if v[i] != o[i] {
			return v[i] < o[i]
		}
	}
	return false
}

func parseVersion(s string) (version, error) {
	var v version
	number, _, _ := strings.Cut(strings.TrimPrefix(s, "v"), "-")
	parts := strings.Split(number, ".")
	if len(parts) != len(v) {
		return v, fmt.Errorf("socketboot: NCCL version %q is not of the form 2.25.1", s)
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 8)
		if err != nil {
			return v, fmt.Errorf("socketboot: NCCL version %q is not of the form 2.25.1", s)
		}
		v[i] = uint8(n)
	}
	return v, nil
}
