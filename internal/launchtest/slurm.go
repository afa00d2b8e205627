package launchtest

import (
	_ "embed" // the script
	"os"
	"strconv"
	"testing"
)

//go:embed slurm.sh
var slurmScript string

// slurm starts a cluster of this machine alone, which ends with the job.
func slurm(t testing.TB, n int, _ []string) []string {
	for program, in := range map[string]string{"srun": "slurm-client", "slurmctld": "slurmctld", "slurmd": "slurmd"} {
		find(t, program, in)
	}
	if os.Getuid() != 0 {
		t.Skip("Slurm's daemons start jobs as root only")
	}
	return []string{"sh", "-c", slurmScript, "slurm.sh", strconv.Itoa(n)}
}
