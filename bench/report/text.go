package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Table is text in columns. Left lists the columns, from 0, that hold words; all others are aligned as numbers are.
type Table struct {
	Header []string
	Rows   [][]string
	Left   []int
	// Groups is the rows before which a rule is drawn.
	Groups map[int]bool
}

// String is the table with a newline at its end.
func (t Table) String() string {
	w := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	w.SetStyle(style)
	configs := make([]table.ColumnConfig, len(t.Header))
	for i := range configs {
		configs[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	for _, i := range t.Left {
		configs[i].Align, configs[i].AlignHeader = text.AlignLeft, text.AlignLeft
	}
	w.SetColumnConfigs(configs)
	w.AppendHeader(row(t.Header))
	for i, r := range t.Rows {
		if t.Groups[i] {
			w.AppendSeparator()
		}
		w.AppendRow(row(r))
	}
	return w.Render() + "\n"
}

func row(cells []string) table.Row {
	r := make(table.Row, len(cells))
	for i, c := range cells {
		r[i] = c
	}
	return r
}

// Bytes is a size as people write it where it is a round one: "64 KiB", "1000 B".
func Bytes(n int) string {
	for _, u := range [...]struct {
		shift uint
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if one := 1 << u.shift; n >= one && n%one == 0 {
			return fmt.Sprintf("%d %s", n>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// Digits is f with three significant digits and no exponent up to 10^15: 0.0123, 1.23, 12.3, 1230.
func Digits(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "-"
	}
	if f == 0 {
		return "0"
	}
	decimals := 2 - int(math.Floor(math.Log10(math.Abs(f))))
	return strconv.FormatFloat(f, 'f', max(decimals, 0), 64)
}

// Wrap breaks text into lines of at most width characters, with prefix before all but the first.
func Wrap(s string, width int, prefix string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(s) {
		n := len([]rune(word))
		if i > 0 {
			if column+1+n > width {
				b.WriteString("\n" + prefix)
				column = len([]rune(prefix))
			} else {
				b.WriteByte(' ')
				column++
			}
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
