package doctor

import (
	"encoding/binary"
	"io/fs"
	"path"
	"strings"
)

// Offsets of PCI's configuration space (PCI Express Base Specification, 7.5 and 7.7.8).
const (
	capPointer    = 0x34
	capExpress    = 0x10
	deviceControl = 0x08 // of the capability Express
	relaxedOrder  = 1 << 4
	firstExtended = 0x100
	extendedACS   = 0x000d
	acsControl    = 0x06
	acsRedirect   = 1<<2 | 1<<3 // P2P request and completion redirect
	classBridge   = "0x0604"
)

func pci(w *World) (found []Finding) {
	gpus := w.pciOfClass("0x03", "0x10de")
	nics := w.rdmaFunctions()
	if len(gpus) > 0 {
		found = append(found, redirects(w)...)
		found = append(found, iommu(w)...)
	}
	for _, dir := range nics {
		config, err := fs.ReadFile(w.Root, path.Join(dir, "config"))
		if err != nil {
			continue
		}
		if at := express(config); at > 0 && at+deviceControl+2 <= len(config) {
			if binary.LittleEndian.Uint16(config[at+deviceControl:])&relaxedOrder == 0 {
				found = append(found, hint(path.Base(dir), "switch it on in the adapter's or the machine's firmware (PCI_WR_ORDERING)",
					"relaxed ordering is off: writes to memory wait for each other"))
			}
		}
	}
	return found
}

// rdmaFunctions is the PCI folders of the devices that the kernel has.
func (w *World) rdmaFunctions() (dirs []string) {
	for _, d := range w.Devices {
		if d.PCI != "" {
			dirs = append(dirs, "sys/bus/pci/devices/"+d.PCI)
		}
	}
	return dirs
}

// express is where the capability is, 0 if there is none.
func express(config []byte) int {
	if len(config) < 64 {
		return 0
	}
	seen := 0
	for at := int(config[capPointer]); at >= 64 && at+4 <= len(config) && seen < 48; at = int(config[at+1]) {
		if config[at] == capExpress {
			return at
		}
		seen++
	}
	return 0
}

// redirects are bridges that send what one device below them sends to another up to the processor.
func redirects(w *World) (found []Finding) {
	var on []string
	unread := false
	for _, dir := range w.pciOfClass(classBridge, "") {
		config, err := fs.ReadFile(w.Root, path.Join(dir, "config"))
		if err != nil || len(config) <= firstExtended {
			unread = true // only the administrator reads this part
			continue
		}
		if at := extended(config, extendedACS); at > 0 && at+acsControl+2 <= len(config) &&
			binary.LittleEndian.Uint16(config[at+acsControl:])&acsRedirect != 0 {
			on = append(on, path.Base(dir))
		}
	}
	if len(on) > 0 {
		found = append(found, hint(strings.Join(on, " "), "setpci -s BRIDGE ECAP_ACS+0x6.w=0000, or off in the firmware",
			"ACS sends traffic between devices below these bridges up to the processor"))
	} else if unread {
		found = append(found, unknown("ACS", "the bridges' settings are for the administrator to read: run doctor as root"))
	}
	return found
}

func extended(config []byte, id uint16) int {
	for at, seen := firstExtended, 0; at >= firstExtended && at+4 <= len(config) && seen < 960; seen++ {
		head := binary.LittleEndian.Uint32(config[at:])
		if uint16(head) == id {
			return at
		}
		at = int(head >> 20)
	}
	return 0
}

func iommu(w *World) []Finding {
	entries, _ := fs.ReadDir(w.Root, "sys/class/iommu")
	if len(entries) == 0 || strings.Contains(w.word("proc", "cmdline"), "iommu=pt") || strings.Contains(w.word("proc", "cmdline"), "iommu.passthrough=1") {
		return nil
	}
	return []Finding{hint("IOMMU", "add iommu=pt to the kernel's command line", "it translates what devices send each other, which goes through the processor then")}
}
