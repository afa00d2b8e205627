package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// resourceKinds is how RDMA netlink gives the objects of each kind: by a command,
// as a list in one attribute, with their numbers in another.
var resourceKinds = []struct {
	kind         driver.ResourceKind
	cmd          uint16
	list, number uint16
}{
	{driver.ResourcePD, uapi.NLDevCmdResPDGet, uapi.NLDevAttrResPD, uapi.NLDevAttrResPDN},
	{driver.ResourceCQ, uapi.NLDevCmdResCQGet, uapi.NLDevAttrResCQ, uapi.NLDevAttrResCQN},
	{driver.ResourceQP, uapi.NLDevCmdResQPGet, uapi.NLDevAttrResQP, uapi.NLDevAttrResLQPN},
	{driver.ResourceCMID, uapi.NLDevCmdResCMIDGet, uapi.NLDevAttrResCMID, 0},
	{driver.ResourceMR, uapi.NLDevCmdResMRGet, uapi.NLDevAttrResMR, uapi.NLDevAttrResMRN},
	{driver.ResourceContext, uapi.NLDevCmdResCtxGet, uapi.NLDevAttrResCtx, uapi.NLDevAttrResCtxN},
	{driver.ResourceSRQ, uapi.NLDevCmdResSRQGet, uapi.NLDevAttrResSRQ, uapi.NLDevAttrResSRQN},
}

// Resources implements driver.ResourceReader.
func (d *device) Resources() (driver.Resources, error) {
	index := d.n.Info.Index
	if index < 0 {
		return driver.Resources{}, &driver.NotSupportedError{Feature: driver.FeatureResources, By: driver.LacksKernel}
	}
	return d.k.w.resources(index)
}

func (w *World) resources(index int) (driver.Resources, error) {
	r := driver.Resources{Counts: map[driver.ResourceKind]int{}}
	ask := append32(nil, uapi.NLDevAttrDevIndex, uint32(index))
	msgs, err := w.Netlink(uapi.NLDevCmdResGet, false, ask)
	if err != nil {
		return r, fmt.Errorf("RDMA netlink, summary of objects: %w", err)
	}
	for _, m := range msgs {
		as, err := parseAttrs(m)
		if err != nil {
			return r, err
		}
		err = eachNested(as[uapi.NLDevAttrResSummary], func(item attrs) {
			n, _ := item.num(uapi.NLDevAttrResSummaryCurr)
			r.Counts[driver.ResourceKind(item.str(uapi.NLDevAttrResSummaryName))] = int(min(n, 1<<31-1))
		})
		if err != nil {
			return r, err
		}
	}
	for _, k := range resourceKinds {
		msgs, err := w.Netlink(k.cmd, true, ask)
		switch {
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOENT):
			continue // a kind that this kernel does not list
		case errors.Is(err, ErrInterrupted):
			r.Partial = true
		case err != nil:
			return r, fmt.Errorf("RDMA netlink, objects of kind %s: %w", k.kind, err)
		}
		for _, m := range msgs {
			as, err := parseAttrs(m)
			if err != nil {
				return r, err
			}
			err = eachNested(as[k.list], func(o attrs) { r.Objects = append(r.Objects, w.resource(k.kind, k.number, o)) })
			if err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// eachNested calls f for each item of a list, the attributes of which are nested.
func eachNested(list []byte, f func(attrs)) error {
	return eachAttr(list, func(_ uint16, item []byte) error {
		as, err := parseAttrs(item)
		if err == nil {
			f(as)
		}
		return err
	})
}

func (w *World) resource(kind driver.ResourceKind, number uint16, as attrs) driver.Resource {
	num := func(id uint16) uint64 { v, _ := as.num(id); return v }
	r := driver.Resource{
		Kind: kind, Number: uint32(num(number)), PID: int(num(uapi.NLDevAttrResPID) & 0x7fffffff), Owner: as.str(uapi.NLDevAttrResKernName),
	}
	if r.PID != 0 {
		r.PID = w.process(r.PID)
		r.Owner = w.command(r.PID)
	}
	switch kind {
	case driver.ResourceQP:
		r.Port, r.RemoteQPN = int(num(uapi.NLDevAttrPortIndex)&0xffff), uint32(num(uapi.NLDevAttrResRQPN))
		r.Type, r.State = qpTypeName(num(uapi.NLDevAttrResType)), driver.QPState(num(uapi.NLDevAttrResState))
	case driver.ResourceCQ:
		r.Depth = int(num(uapi.NLDevAttrResCQE) & 0x7fffffff)
	case driver.ResourceMR:
		r.Bytes = num(uapi.NLDevAttrResMRLen)
	}
	if kind == driver.ResourceCQ || kind == driver.ResourcePD {
		r.Users = int(num(uapi.NLDevAttrResUseCnt) & 0x7fffffff)
	}
	return r
}

// process is the process of a task. The kernel names the thread that made an object, which in a Go program may be any.
func (w *World) process(task int) int {
	s, err := fs.ReadFile(w.Proc, strconv.Itoa(task)+"/status")
	if err != nil {
		return task
	}
	for line := range strings.Lines(string(s)) {
		if group, ok := strings.CutPrefix(line, "Tgid:"); ok {
			if pid, err := strconv.Atoi(strings.TrimSpace(group)); err == nil && pid > 0 {
				return pid
			}
		}
	}
	return task
}

// command is the name of a process, "" if it is gone or hidden.
func (w *World) command(pid int) string {
	s, err := fs.ReadFile(w.Proc, strconv.Itoa(pid)+"/comm")
	if err != nil {
		return ""
	}
	return string(trimNewline(s))
}

func trimNewline(s []byte) []byte {
	if n := len(s); n > 0 && s[n-1] == '\n' {
		return s[:n-1]
	}
	return s
}

// qpTypeName is enum ib_qp_type by the words of rdma res.
func qpTypeName(v uint64) string {
	names := [...]string{"SMI", "GSI", "RC", "UC", "UD", "RAW_IPV6", "RAW_ETHERTYPE", "", "RAW_PACKET", "XRC_INI", "XRC_TGT"}
	switch {
	case v < uint64(len(names)) && names[v] != "":
		return names[v]
	case v == 0xff:
		return "DRIVER"
	}
	return fmt.Sprintf("type %d", v)
}
