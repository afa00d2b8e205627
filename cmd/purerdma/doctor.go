package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/cmd/purerdma/internal/doctor"
)

func (t *tool) doctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Looks for what people trip over, and says what to do",
		Long: "Looks at modules, device nodes and rights, ports, addresses, MTU, limits, /dev/shm, GPUDirect, PCI and RoCE settings. " +
			"The exit code is 1 if something will not work. It changes nothing; as root it sees more.",
		Example:           "  purerdma doctor\n  sudo purerdma doctor --json",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			found := doctor.Examine(doctor.Here())
			t.doc.Findings = &found
			fmt.Fprint(t.out.Text, findings(found, t.out.Colours))
			if n := doctor.Problems(found); n > 0 {
				return fmt.Errorf("%d of the findings are problems", n)
			}
			return nil
		},
	}
}

// marks is how a level is shown, and its colour on a terminal (ECMA-48, SGR).
var marks = map[doctor.Level]struct{ word, colour string }{
	doctor.Fine:    {"ok     ", "32"},
	doctor.Hint:    {"hint   ", "33"},
	doctor.Problem: {"PROBLEM", "1;31"},
	doctor.Unknown: {"?      ", "2"},
}

// findings is a line for each, and one more with what to do.
func findings(found []doctor.Finding, colours bool) string {
	var b strings.Builder
	for _, f := range found {
		mark := marks[f.Level].word
		if colours {
			mark = "\x1b[" + marks[f.Level].colour + "m" + mark + "\x1b[0m"
		}
		on := ""
		if f.On != "" {
			on = f.On + ": "
		}
		fmt.Fprintf(&b, "%s  %-14s %s%s\n", mark, f.Check, on, f.Text)
		if f.Remedy != "" {
			fmt.Fprintf(&b, "%24s -> %s\n", "", f.Remedy)
		}
	}
	return b.String()
}
