package kernel

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
)

// PKeys implements driver.PKeyReader: sysfs, since no ioctl tells.
func (c *Context) PKeys(port int) ([]uint16, error) {
	name := c.name()
	dir := path.Join(classIB, name, "ports", strconv.Itoa(port), "pkeys")
	entries, err := fs.ReadDir(c.w.Sys, dir)
	if err != nil {
		return nil, err
	}
	keys := make([]uint16, len(entries))
	for i := range keys {
		s, err := c.w.sysString(dir, strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		v, err := strconv.ParseUint(s, 0, 16)
		if err != nil {
			return nil, fmt.Errorf("P_Key %d of %s/%d is %q", i, name, port, s)
		}
		keys[i] = uint16(v)
	}
	return keys, nil
}
