package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/purerdma/purerdma/bench/cli"
	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/cmd/purerdma/internal/doctor"
	"github.com/purerdma/purerdma/cmd/purerdma/internal/inventory"
)

// document is what --json prints: the head, and what the subcommand found.
type document struct {
	report.Head
	Command   string              `json:"command"` // the subcommand, "" for none
	Devices   *[]inventory.Device `json:"devices,omitempty"`
	Topology  *topology           `json:"topology,omitempty"`
	Findings  *[]doctor.Finding   `json:"findings,omitempty"`
	Events    *[]event            `json:"events,omitempty"`
	Counters  *[]rise             `json:"counters,omitempty"`
	Variables *[]variable         `json:"variables,omitempty"`
}

// tool is one run of the command.
type tool struct {
	out cli.IO
	doc document
}

func (t *tool) command() cli.Command {
	return cli.Command{Schema: "purerdma", Version: 1, Completion: true, Make: t.cobra,
		Document: func(h report.Head) any { t.doc.Head = h; return t.doc }}
}

func (t *tool) cobra(out cli.IO) *cobra.Command {
	t.out = out
	root := &cobra.Command{
		Use:   "purerdma",
		Short: "Shows what RDMA devices a machine has and what hinders them",
		Example: `  purerdma devices
  purerdma devices -v mlx5_0
  purerdma topo --json
  purerdma doctor`,
		Version: report.Build(),
		Args:    noArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.PersistentFlags().Bool("json", false, "print one JSON document to standard output and everything else to standard error")
	for _, c := range []*cobra.Command{t.devices(), t.topo(), t.doctor(), t.monitor(), t.variables()} {
		run := c.RunE
		c.RunE = func(c *cobra.Command, args []string) error {
			t.doc.Command = c.Name()
			return run(c, args)
		}
		root.AddCommand(c)
	}
	return root
}

var sysfs = os.DirFS("/sys")

// noArgs is for commands that take none, so that a mistyped one is wrong usage.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return cli.Usagef("%s has no %q; %s --help shows what there is", c.CommandPath(), args[0], c.CommandPath())
}
