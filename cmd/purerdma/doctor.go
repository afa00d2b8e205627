package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/cmd/purerdma/internal/doctor"
)

func (t *tool) doctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Looks for what people trip over, and says what to do",
		Long: "Looks at modules, device nodes and rights, ports, addresses, MTU, limits, /dev/shm, GPUDirect, PCI and RoCE settings. " +
			"The exit code is 1 if something will not work. It changes nothing; as root it sees more.",
		Example: "  purerdma doctor\n  sudo purerdma doctor --json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			found := doctor.Examine(doctor.Here())
			t.doc.Findings = &found
			marks := map[doctor.Level]string{doctor.Fine: "ok     ", doctor.Hint: "hint   ", doctor.Problem: "PROBLEM", doctor.Unknown: "?      "}
			for _, f := range found {
				on := ""
				if f.On != "" {
					on = f.On + ": "
				}
				fmt.Fprintf(t.out.Text, "%s  %-14s %s%s\n", marks[f.Level], f.Check, on, f.Text)
				if f.Remedy != "" {
					fmt.Fprintf(t.out.Text, "%24s -> %s\n", "", f.Remedy)
				}
			}
			if n := doctor.Problems(found); n > 0 {
				return fmt.Errorf("%d of the findings are problems", n)
			}
			return nil
		},
	}
}
