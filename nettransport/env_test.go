package nettransport

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/purerdma/purerdma/qp"
	"github.com/purerdma/purerdma/socketboot"
	"github.com/purerdma/purerdma/topo"
)

func TestConfigFromEnv(t *testing.T) {
	vars := map[string]string{
		"NCCL_IB_HCA": "=mlx5_0:1", "NCCL_IB_QPS_PER_CONNECTION": "4", "NCCL_IB_SPLIT_DATA_ON_QPS": "1", "NCCL_IB_USE_INLINE": "1",
		"NCCL_IB_ADAPTIVE_ROUTING": "0", "NCCL_IB_AR_THRESHOLD": "4096", "NCCL_IB_GID_INDEX": "3", "NCCL_IB_PKEY": "1", "NCCL_IB_SL": "5",
		"NCCL_IB_TC": "106", "NCCL_IB_FIFO_TC": "0x68", "NCCL_IB_TIMEOUT": "22", "NCCL_IB_MQP_RETRY_CNT": "5", "NCCL_IB_MQP_RETRY_SLEEP_MSEC": "20", "NCCL_IB_ADDR_FAMILY": "AF_INET6",
		"NCCL_IB_ADDR_RANGE": "fd00::5/64", "NCCL_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_FAMILY": "AF_INET", "NCCL_IB_ROCE_VERSION_NUM": "2",
		"NCCL_NET_GDR_LEVEL": "PHB", "NCCL_NET_GDR_READ": "0", "NCCL_DMABUF_ENABLE": "0", "NCCL_GDR_FLUSH_DISABLE": "1", "NCCL_NET_FORCE_FLUSH": "1",
	}
	c, err := ConfigFromEnv(func(name string) string { return vars[name] })
	if err != nil {
		t.Fatal(err)
	}
	if c.HCA != "=mlx5_0:1" || c.QPsPerConn != 4 || !c.Split || !c.Inline || c.AdaptiveRouting != Off || c.ARThreshold != 4096 ||
		c.Net.IfName != "eth0" || c.Net.Family != socketboot.FamilyIPv4 {
		t.Errorf("%+v", c)
	}
	if g := c.GDR; g.Level != topo.NODE || g.Never || g.AllowRead == nil || *g.AllowRead || !g.NoDMABuf || !g.NoFlush || !g.ForceFlush {
		t.Errorf("%+v", g)
	}
	vars["NCCL_NET_GDR_LEVEL"] = "LOC"
	if c, err := ConfigFromEnv(func(name string) string { return vars[name] }); err != nil || !c.GDR.Never {
		t.Errorf("%+v, %v", c.GDR, err)
	}
	p := qp.Defaults()
	for _, o := range c.QP {
		o(&p)
	}
	if p.GIDIndex != 3 || p.PKeyIndex != 1 || p.ServiceLevel != 5 || p.TrafficClass != 106 || p.Timeout != 22 || p.Retry != 7 || p.RTRRetries != 5 || p.RTRRetryWait != 20*time.Millisecond ||
		p.GID.Family != qp.IPv6 || p.GID.Range != netip.MustParsePrefix("fd00::/64") {
		t.Errorf("%+v", p)
	}
	for _, o := range c.RecvQP {
		o(&p)
	}
	if p.TrafficClass != 0x68 {
		t.Errorf("traffic class of credits %d", p.TrafficClass)
	}
	none, err := ConfigFromEnv(func(string) string { return "" })
	if err != nil || none.HCA != "" || none.QP != nil || none.RecvQP != nil || none.QPsPerConn != 0 || none.Split {
		t.Errorf("%+v, %v", none, err)
	}
}

func TestBadEnv(t *testing.T) {
	for name, bad := range map[string][]string{
		"NCCL_IB_HCA":                  {"a:0", "^", "a,"},
		"NCCL_NET_GDR_LEVEL":           {"near"},
		"NCCL_NET_GDR_READ":            {"2"},
		"NCCL_IB_QPS_PER_CONNECTION":   {"0", "129", "x", "1.5"},
		"NCCL_IB_SPLIT_DATA_ON_QPS":    {"2", "yes"},
		"NCCL_IB_USE_INLINE":           {"-1"},
		"NCCL_IB_ADAPTIVE_ROUTING":     {"-1", "2"},
		"NCCL_IB_AR_THRESHOLD":         {"-1", "2147483648"},
		"NCCL_IB_ROCE_VERSION_NUM":     {"1", "3"},
		"NCCL_IB_GID_INDEX":            {"-2"},
		"NCCL_IB_PKEY":                 {"65536"},
		"NCCL_IB_MQP_RETRY_CNT":        {"-1", "many"},
		"NCCL_IB_MQP_RETRY_SLEEP_MSEC": {"-1", "1s"},
		"NCCL_IB_SL":                   {"16"},
		"NCCL_IB_TC":                   {"256"},
		"NCCL_IB_FIFO_TC":              {"-2"},
		"NCCL_IB_TIMEOUT":              {"32"},
		"NCCL_IB_RETRY_CNT":            {"8"},
		"NCCL_IB_ADDR_FAMILY":          {"inet"},
		"NCCL_IB_ADDR_RANGE":           {"10.0.0.0", "::/200"},
		"NCCL_SOCKET_FAMILY":           {"AF_UNIX"},
	} {
		for _, v := range bad {
			_, err := ConfigFromEnv(func(n string) string {
				if n == name {
					return v
				}
				return ""
			})
			if !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s=%q: %v", name, v, err)
				continue
			}
			tells(t, err, name)
		}
	}
}
