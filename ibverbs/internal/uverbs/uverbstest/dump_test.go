package uverbstest

import (
	"encoding/binary"
	"strings"
	"testing"
)

func TestReadDump(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the dump is of a little endian machine")
	}
	records, err := ReadDump(strings.NewReader(`ioctl 0 0 e 0
attr 2 8 1 17 -
attr 0 8 1 100000005 -
ioctl 4 1 e 10
attr 1 4 1 7ffc00001000 -
attr 0 0 1 6 -
ioctl 0 0 e 0
attr 0 a 1 7ffc00001000 000102030405060708ff
write 0 1c00000008000100000000000000000006000000000000000000000038000000
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records {
		got = append(got, r.String())
	}
	want := []string{
		"DEVICE.INVOKE_WRITE REQ_NOTIFY_CQ\n\tCORE_IN len 8 05 00 00 00 01 00 00 00\n\tWRITE_CMD len 8 17 00 00 00 00 00 00 00",
		"QP.DESTROY: device or resource busy\n\tHANDLE len 0\n\tRESP len 4",
		"DEVICE.INVOKE_WRITE command 0x0\n\tCORE_IN len 10 00 01 02 03 04 05 06 07 08 ff",
		"DEVICE.INVOKE_WRITE POST_SEND by write(2)\n\tCORE_IN len 24 00 00 00 00 00 00 00 00 06 00 00 00 00 00 00 00 00 00 00 00 38 00 00 00\n\tCORE_OUT len 4\n\tWRITE_CMD len 8 1c 00 00 00 00 00 00 00",
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
	for _, s := range []string{"x", "attr 0 8 1 0 -", "ioctl 0 0 e z", "ioctl 0 0 e 0\nattr 9 8 1 0 -", "ioctl 0 0 e 0\nattr 0 a 1 0 00", "write 0 1c00", "write 0 zz", "write 0 1c00000009000100"} {
		if r, err := ReadDump(strings.NewReader(s)); err == nil {
			t.Errorf("%q is %v", s, r)
		}
	}
}
