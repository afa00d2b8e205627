package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/internal/ncclenv"
)

// variable is one of NCCL's that this module obeys, and what it is set to here.
type variable struct {
	Name    string `json:"name"`
	Value   string `json:"value,omitempty"`
	Default string `json:"default"`
	Meaning string `json:"meaning"`
}

func (t *tool) variables() *cobra.Command {
	return &cobra.Command{
		Use:               "variables",
		Short:             "Lists the variables of NCCL that are obeyed",
		Long:              "Lists the environment variables of NCCL that this module obeys, what each means, its default, and what it is set to here.",
		Example:           "  purerdma variables",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			all := []variable{}
			table := report.Table{Header: []string{"NAME", "DEFAULT", "SET TO", "MEANING"}, Left: []int{0, 1, 2, 3}}
			for _, v := range ncclenv.Variables() {
				value := os.Getenv(v.Name)
				all = append(all, variable{v.Name, value, v.Default, v.Meaning})
				table.Rows = append(table.Rows, []string{v.Name, v.Default, value, v.Meaning})
			}
			t.doc.Variables = &all
			fmt.Fprint(t.out.Text, table.String())
			return nil
		},
	}
}
