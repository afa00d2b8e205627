//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/purerdma/purerdma/gpu"
	"github.com/purerdma/purerdma/topo"
)

// topology is what lies between the GPUs, as package topo and as nvidia-smi topo -m have it.
type topology struct {
	Ours  [][]string `json:"ours"`
	SMI   [][]string `json:"nvidia_smi"` // null without that program
	Same  bool       `json:"same"`
	Words string     `json:"words"` // why there is nothing to compare, or where they differ
}

func compareTopology(d gpu.Driver) (t topology) {
	sys := os.DirFS("/sys")
	s, err := topo.Read(sys)
	if s != nil {
		err = s.AddGPUs(sys, d)
	}
	if s == nil {
		t.Words = err.Error()
		return t
	}
	t.Ours = amongGPUs(s)
	if err != nil {
		t.Words = err.Error()
	}
	out, err := exec.Command("nvidia-smi", "topo", "-m").Output()
	if err != nil {
		t.Words = fmt.Sprintf("nvidia-smi: %v", err)
		return t
	}
	t.SMI = parseSMI(string(out))
	t.Words = difference(t.Ours, t.SMI)
	t.Same = t.Words == ""
	return t
}

// amongGPUs is the part of the matrix that is of GPUs.
func amongGPUs(s *topo.System) (part [][]string) {
	matrix := s.Matrix()
	for i, a := range s.Devices {
		if a.Kind != topo.GPU {
			continue
		}
		var cells []string
		for j, b := range s.Devices {
			if b.Kind == topo.GPU {
				cells = append(cells, matrix[i][j])
			}
		}
		part = append(part, cells)
	}
	return part
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// parseSMI takes the cells of GPUs out of what nvidia-smi topo -m prints.
func parseSMI(out string) (cells [][]string) {
	var columns int
	for _, l := range strings.Split(escapes.ReplaceAllString(out, ""), "\n") {
		fields := strings.Fields(l)
		switch {
		case len(fields) == 0 || !strings.HasPrefix(fields[0], "GPU"):
		case columns == 0: // the header
			for columns < len(fields) && regexp.MustCompile(`^GPU\d+$`).MatchString(fields[columns]) {
				columns++
			}
		case len(fields) > columns:
			cells = append(cells, fields[1:1+columns])
		}
	}
	return cells
}

// difference is the first cell that is not the same, "" if there is none. nvidia-smi tells NODE and PHB apart as package topo does.
func difference(a, b [][]string) string {
	if len(a) != len(b) {
		return fmt.Sprintf("%d GPUs, nvidia-smi has %d", len(a), len(b))
	}
	for i := range a {
		for j := range a[i] {
			if j >= len(b[i]) || a[i][j] != b[i][j] {
				return fmt.Sprintf("between GPU %d and %d lies %s, nvidia-smi says %s", i, j, a[i][j], strings.Join(b[i], " "))
			}
		}
	}
	return ""
}
