package nettransport

import (
	"net/netip"
	"os"
	"time"

	"github.com/purerdma/purerdma/gdr"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/internal/ncclenv"
	"github.com/purerdma/purerdma/qp"
	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/topo"
)

// ConfigFromEnv is a Config by NCCL's variables, as getenv has them (nil is os.Getenv). A variable that is empty counts as not set; one
// that cannot be understood is an error that names it, where NCCL would take its default. Read are, of NCCL_IB_…: HCA,
// QPS_PER_CONNECTION, SPLIT_DATA_ON_QPS, ADAPTIVE_ROUTING, AR_THRESHOLD, USE_INLINE, GID_INDEX, ADDR_FAMILY, ADDR_RANGE, PKEY,
// SL, TC, FIFO_TC, TIMEOUT, RETRY_CNT, MQP_RETRY_CNT, MQP_RETRY_SLEEP_MSEC; NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY; and for a GPU
// NCCL_NET_GDR_LEVEL, NCCL_NET_GDR_READ, NCCL_DMABUF_ENABLE, NCCL_GDR_FLUSH_DISABLE and NCCL_NET_FORCE_FLUSH. NCCL_IB_ROCE_VERSION_NUM
// may be 2 only: version 1 is taken where there is no other.
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	if getenv == nil {
		getenv = os.Getenv
	}
	e := ncclenv.Reader{Getenv: getenv, Wrap: func(name string, err error) error {
		return &ibverbs.Error{Op: "read environment", Object: name, Err: err}
	}}
	var c Config
	c.HCA = e.Text("NCCL_IB_HCA")
	if _, err := parseHCA(c.HCA); err != nil {
		e.Fail("NCCL_IB_HCA", err)
	}
	e.Number("NCCL_IB_QPS_PER_CONNECTION", 1, socketboot.MaxQPs, func(n int) { c.QPsPerConn = n })
	e.Flag("NCCL_IB_SPLIT_DATA_ON_QPS", func(on bool) { c.Split = on })
	e.Flag("NCCL_IB_USE_INLINE", func(on bool) { c.Inline = on })
	e.Number("NCCL_IB_ADAPTIVE_ROUTING", -2, 1, func(n int) {
		switch n {
		case 0:
			c.AdaptiveRouting = Off
		case 1:
			c.AdaptiveRouting = On
		case -1:
			e.Refuse("NCCL_IB_ADAPTIVE_ROUTING", "-1", "0, 1 or -2")
		}
	})
	e.Number("NCCL_IB_AR_THRESHOLD", 0, MaxMessage, func(n int) {
		if c.ARThreshold = n; n == 0 {
			c.ARThreshold = -1 // the zero of a Config is the default
		}
	})
	e.Number("NCCL_IB_ROCE_VERSION_NUM", 2, 2, func(int) {})
	queuePairs(&e, &c)
	gpuDirect(&e, &c.GDR)
	c.Net.IfName = e.Text("NCCL_SOCKET_IFNAME")
	switch f := socketboot.Family(e.Text("NCCL_SOCKET_FAMILY")); f {
	case socketboot.AnyFamily, socketboot.FamilyIPv4, socketboot.FamilyIPv6:
		c.Net.Family = f
	default:
		e.Refuse("NCCL_SOCKET_FAMILY", string(f), "AF_INET or AF_INET6")
	}
	return c, e.Err()
}

// gpuDirect reads what decides how devices reach a GPU's memory.
func gpuDirect(e *ncclenv.Reader, c *gdr.Config) {
	if s := e.Text("NCCL_NET_GDR_LEVEL"); s != "" {
		level, err := topo.ParseLevel(s)
		if err != nil {
			e.Refuse("NCCL_NET_GDR_LEVEL", s, "LOC, NVL, PIX, PXB, PHB, SYS or a number from 0 to 5")
		}
		c.Level, c.Never = level, level == topo.LOC
	}
	e.Number("NCCL_NET_GDR_READ", -2, 1, func(n int) {
		if n >= 0 {
			on := n == 1
			c.AllowRead = &on
		}
	})
	e.Flag("NCCL_DMABUF_ENABLE", func(on bool) { c.NoDMABuf = !on })
	e.Flag("NCCL_GDR_FLUSH_DISABLE", func(on bool) { c.NoFlush = on })
	e.Flag("NCCL_NET_FORCE_FLUSH", func(on bool) { c.ForceFlush = on })
}

// queuePairs reads what becomes an option of queue pairs.
func queuePairs(e *ncclenv.Reader, c *Config) {
	add := func(o qp.Option) { c.QP = append(c.QP, o) }
	e.Number("NCCL_IB_GID_INDEX", -1, 1<<16, func(n int) { add(qp.WithGIDIndex(n)) })
	e.Number("NCCL_IB_PKEY", 0, 1<<16-1, func(n int) { add(qp.WithPKeyIndex(n)) })
	e.Number("NCCL_IB_SL", 0, 15, func(n int) { add(qp.WithServiceLevel(uint8(n))) })
	e.Number("NCCL_IB_TC", 0, 255, func(n int) { add(qp.WithTrafficClass(uint8(n))) })
	e.Number("NCCL_IB_FIFO_TC", -1, 255, func(n int) {
		if n >= 0 {
			c.RecvQP = append(c.RecvQP, qp.WithTrafficClass(uint8(n)))
		}
	})
	e.Number("NCCL_IB_MQP_RETRY_CNT", 0, 1<<16, func(n int) { add(func(p *qp.Params) { p.RTRRetries = n }) })
	e.Number("NCCL_IB_MQP_RETRY_SLEEP_MSEC", 0, 1<<16, func(n int) {
		add(func(p *qp.Params) { p.RTRRetryWait = time.Duration(n) * time.Millisecond })
	})
	timeout, retry := -1, -1
	e.Number("NCCL_IB_TIMEOUT", 0, 31, func(n int) { timeout = n })
	e.Number("NCCL_IB_RETRY_CNT", 0, 7, func(n int) { retry = n })
	if timeout >= 0 || retry >= 0 {
		add(func(p *qp.Params) {
			if timeout >= 0 {
				p.Timeout = uint8(timeout)
			}
			if retry >= 0 {
				p.Retry = uint8(retry)
			}
		})
	}
	var want qp.GIDWant
	switch f := e.Text("NCCL_IB_ADDR_FAMILY"); f {
	case "":
	case "AF_INET":
		want.Family = qp.IPv4
	case "AF_INET6":
		want.Family = qp.IPv6
	default:
		e.Refuse("NCCL_IB_ADDR_FAMILY", f, "AF_INET or AF_INET6")
	}
	if s := e.Text("NCCL_IB_ADDR_RANGE"); s != "" {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			e.Refuse("NCCL_IB_ADDR_RANGE", s, "an address and a prefix length, 10.0.0.0/8")
		}
		want.Range = p.Masked()
	}
	if want.Family != qp.AnyFamily || want.Range.IsValid() {
		add(qp.WithGID(want))
	}
}
