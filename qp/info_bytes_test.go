package qp

import (
	"encoding/hex"
	"testing"

	"github.com/purerdma/purerdma/ibverbs"
)

func TestInfoBytes(t *testing.T) {
	i := Info{GID: ibverbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}, QPN: 0x123456, PSN: 0xabcdef, LID: 0x102, Port: 2,
		LinkLayer: ibverbs.LinkEthernet, MTU: ibverbs.MTU1024}
	b, err := i.AppendBinary([]byte{7})
	const want = "07" + "01020302" + "00123456" + "00abcdef" + "01020000" + "00000000000000000000ffff0a000001"
	if got := hex.EncodeToString(b); err != nil || got != want {
		t.Fatalf("%s, %v\nwant %s", got, err, want)
	}
	var back Info
	if err := back.UnmarshalBinary(b[1:]); err != nil || back != i {
		t.Errorf("came back as %+v, %v", back, err)
	}
	for name, bad := range map[string][]byte{"short": b[1:32], "long": append(b[1:33:33], 0), "empty": nil,
		"other version": append([]byte{2}, b[2:]...)} {
		if err := back.UnmarshalBinary(bad); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
