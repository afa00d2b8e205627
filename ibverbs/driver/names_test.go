package driver_test

import (
	"fmt"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
)

func TestVerbsNames(t *testing.T) {
	for _, c := range []struct {
		v    fmt.Stringer
		want string
	}{
		{driver.OpWrite, "IBV_WR_RDMA_WRITE"},
		{driver.OpSendWithInv, "IBV_WR_SEND_WITH_INV"},
		{driver.Opcode(77), "IBV_WR 77"},
		{driver.WCRecv, "IBV_WC_RECV"},
		{driver.WCCmpSwap, "IBV_WC_COMP_SWAP"},
		{driver.WCOpcode(99), "IBV_WC opcode 99"},
		{driver.Fence | driver.Signaled, "FENCE|SIGNALED"},
		{driver.SendFlags(0), "0"},
		{driver.WCGRH | driver.WCWithInv, "GRH|WITH_INV"},
		{driver.LocalWrite | driver.RelaxedOrdering, "LOCAL_WRITE|RELAXED_ORDERING"},
		{driver.Access(1 << 9), "bit 9"},
		{driver.QPStateMask | driver.QPDestQPN, "STATE|DEST_QPN"},
	} {
		if got := c.v.String(); got != c.want {
			t.Errorf("%T is %q, want %q", c.v, got, c.want)
		}
	}
}

func TestGIDText(t *testing.T) {
	for _, s := range []string{"::ffff:10.0.0.1", "fe80::1", "::"} {
		var g, back driver.GID
		if err := g.UnmarshalText([]byte(s)); err != nil {
			t.Fatal(err)
		}
		text, err := g.MarshalText()
		if err != nil || string(text) != s {
			t.Errorf("%s became %s, %v", s, text, err)
		}
		if err := back.UnmarshalText(text); err != nil || back != g {
			t.Errorf("%s came back as %v, %v", s, back, err)
		}
	}
	var g driver.GID
	if err := g.UnmarshalText([]byte("10.0.0.1")); err != nil || g.String() != "::ffff:10.0.0.1" {
		t.Errorf("an IPv4 address became %v, %v", g, err)
	}
	for _, bad := range []string{"", "x", "fe80::1%eth0", "10.0.0"} {
		if err := g.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q was taken for %v", bad, g)
		}
	}
}
