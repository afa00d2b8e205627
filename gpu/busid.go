package gpu

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseBusID reads a PCI address in any form that people and drivers use:
// "0000:3b:00.0" of sysfs, "00000000:3B:00.0" of NVML and nvidia-smi, without the
// domain, and without the function.
func ParseBusID(s string) (BusID, error) {
	bad := func(what string) (BusID, error) {
		return BusID{}, fmt.Errorf("PCI address %q: %s; it looks like 0000:3b:00.0", s, what)
	}
	parts := strings.Split(strings.TrimSpace(s), ":")
	if len(parts) != 2 && len(parts) != 3 {
		return bad("it has no two or three parts between colons")
	}
	var domain uint64
	if len(parts) == 3 {
		var err error
		if domain, err = strconv.ParseUint(parts[0], 16, 32); err != nil {
			return bad("the domain is not a hexadecimal number of 32 bits")
		}
		parts = parts[1:]
	}
	bus, err := strconv.ParseUint(parts[0], 16, 8)
	if err != nil {
		return bad("the bus is not a hexadecimal number of 8 bits")
	}
	device, function, hasFunction := strings.Cut(parts[1], ".")
	dev, err := strconv.ParseUint(device, 16, 5)
	if err != nil {
		return bad("the device is not a hexadecimal number up to 1f")
	}
	var fn uint64
	if hasFunction {
		if fn, err = strconv.ParseUint(function, 16, 3); err != nil {
			return bad("the function is not a number up to 7")
		}
	}
	return BusID{Domain: uint32(domain), Bus: uint8(bus), Device: uint8(dev), Function: uint8(fn), Valid: true}, nil
}

// String is the form of sysfs, "" for none.
func (b BusID) String() string {
	if !b.Valid {
		return ""
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", b.Domain, b.Bus, b.Device, b.Function)
}

// Int64 is NCCL's form (busIdToInt64): domain, bus, device and function as the
// hexadecimal digits of the address without the separators.
func (b BusID) Int64() int64 {
	return int64(b.Domain)<<20 | int64(b.Bus)<<12 | int64(b.Device)<<4 | int64(b.Function)
}

// MarshalText is String, for JSON.
func (b BusID) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText is ParseBusID; nothing is none.
func (b *BusID) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*b = BusID{}
		return nil
	}
	*b, err = ParseBusID(string(text))
	return err
}
