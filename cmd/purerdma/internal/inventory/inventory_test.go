package inventory

import (
	"strings"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
	"github.com/purerdma/purerdma/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestTake(t *testing.T) {
	fabric := ibverbs.WithDrivers(memdriver.New(memdriver.Config{Devices: make([]memdriver.DeviceConfig, 2)}))
	all, err := Take(nil, fabric)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d devices, %v", len(all), err)
	}
	d := all[0]
	if d.Name != "mem0" || d.Problem != "" || d.Attr == nil || len(d.Ports) != 1 || d.Attr.MaxQP == 0 {
		t.Errorf("%+v", d)
	}
	p := d.Ports[0]
	if p.State != "ACTIVE" || p.ActiveMTU == 0 || len(p.GIDs) == 0 || p.Problem != "" {
		t.Errorf("%+v", p)
	}
	found := false
	for _, g := range p.GIDs {
		found = found || g.IPv4 != "" && strings.HasSuffix(g.GID, g.IPv4)
	}
	if !found {
		t.Errorf("no GID has an IPv4 address: %+v", p.GIDs)
	}

	one, err := Take([]string{"mem1"}, fabric)
	if err != nil || len(one) != 1 || one[0].Name != "mem1" {
		t.Errorf("%+v, %v", one, err)
	}
	one, err = Take([]string{"mlx5_0", "mem0"}, fabric)
	if err == nil || !strings.Contains(err.Error(), `"mlx5_0"`) || len(one) != 1 {
		t.Errorf("%+v, %v", one, err)
	}
}

func TestGUID(t *testing.T) {
	if got, want := GUID(0x0c42a10300123456), "0c42:a103:0012:3456"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
