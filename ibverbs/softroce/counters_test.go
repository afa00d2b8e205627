package softroce

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/purerdma/purerdma/ibverbs/driver"
	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
)

// counter is the end's counter under the name that users see.
func (e *end) counter(name string) uint64 {
	e.r.t.Helper()
	list, err := e.ctx.(driver.CounterReader).Counters(1)
	e.r.must(err)
	i := slices.IndexFunc(list, func(c driver.Counter) bool { return c.Name == name })
	if i < 0 {
		e.r.t.Fatalf("no counter %s", name)
	}
	return list[i].Value
}

// Each counter of the engine is in the list, and the package explains it.
func TestCountersAreAllTold(t *testing.T) {
	const ofTheLink = 4
	var c counters
	list := c.list(link.Stats{})
	if n := reflect.TypeFor[counters]().NumField(); len(list) != n+ofTheLink {
		t.Errorf("%d counters are told, there are %d and %d of the link", len(list), n, ofTheLink)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, told := range list {
		if !slices.Contains([]string{"sent_pkts", "sent_bytes", "rcvd_bytes", "send_err"}, told.Name) && !strings.Contains(string(doc), told.Name) {
			t.Errorf("the package does not explain %s", told.Name)
		}
	}
}
