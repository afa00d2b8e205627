package doctor

import (
	"io/fs"
	"path"
	"strings"

	"github.com/purerdma/purerdma/cmd/purerdma/internal/inventory"
)

// roce reads what some drivers show of priorities and congestion: the folders ecn and qos of mlx5's net devices.
func roce(w *World) (found []Finding) {
	w.eachPort(func(name string, d *inventory.Device, p *inventory.Port) {
		if p.LinkLayer != ethernet || p.State != active || d.Software {
			return
		}
		dir := path.Join("sys/class/net", first(p))
		for _, side := range []struct{ folder, what string }{{"roce_np", "tells of congestion (notification point)"}, {"roce_rp", "slows down on congestion (reaction point)"}} {
			on, off := 0, 0
			entries, _ := fs.ReadDir(w.Root, path.Join(dir, "ecn", side.folder, "enable"))
			for _, e := range entries {
				if w.word(path.Join(dir, "ecn", side.folder, "enable"), e.Name()) == "1" {
					on++
				} else {
					off++
				}
			}
			if on == 0 && off > 0 {
				found = append(found, hint(name, "echo 1 > /"+dir+"/ecn/"+side.folder+"/enable/PRIORITY",
					"ECN is off for all priorities: the port never %s", side.what))
			}
		}
		if pfc := w.word(path.Join(dir, "qos"), "pfc"); pfc != "" && !strings.Contains(pfc, "1") {
			found = append(found, hint(name, "mlnx_qos -i "+first(p)+" --pfc 0,0,0,1,0,0,0,0, and the same on the switch, or rely on ECN alone",
				"PFC is off for all priorities: a full switch drops packets"))
		}
	})
	return found
}
