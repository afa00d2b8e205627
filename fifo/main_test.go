package fifo

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// closing closes c at the end of the test.
func closing[C interface{ Close() error }](t testing.TB, c C, err error) C {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func newCredits(t testing.TB, l Layout) *Credits {
	t.Helper()
	c, err := NewCredits(l)
	return closing(t, c, err)
}

func newCreditStaging(t testing.TB, l Layout) *CreditStaging {
	t.Helper()
	s, err := NewCreditStaging(l)
	return closing(t, s, err)
}

func newSizes(t testing.TB, l Layout) *Sizes {
	t.Helper()
	s, err := NewSizes(l)
	return closing(t, s, err)
}

func newSizesStaging(t testing.TB) *SizesStaging {
	t.Helper()
	s, err := NewSizesStaging()
	return closing(t, s, err)
}

var allLayouts = []Layout{Layout225, Layout2297, Layout230}
