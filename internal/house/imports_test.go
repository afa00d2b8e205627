package house

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// rooms are the folders of ARCHITECTURE.md; a package imports only from later lines. Rooms of one line know nothing of each other.
var rooms = [][]string{
	{"cmd", "gpu/bench"},
	{"bench"},
	{"transport"},
	{"nettransport", "p2ptransport", "shmtransport"},
	{"transport/driver"},
	{"gdr"},
	{"topo"},
	{"socketboot"},
	{"fifo"},
	{"ibverbs/metrics", "ibverbs/rdmalink"},
	{"qp"},
	{"internal/pingpong"},
	{"internal/hwtest"},
	{"mr"},
	{"ibverbs"},
	{"ibverbs/softroce"},
	{"ibverbs/internal/mlx5model"},
	{"ibverbs/internal/rxe", "ibverbs/internal/mlx5"},
	{"ibverbs/internal/kernel"},
	{"ibverbs/internal/uverbs"},
	{"ibverbs/internal/uapi"},
	{"ibverbs/driver/drivertest", "ibverbs/driver/memdriver"},
	{"ibverbs/internal/softdev"},
	{"ibverbs/driver"},
	{"gpu"},
	{"internal"},
	{"lab"},
}

// room returns the innermost room that a folder lies in, and its line.
func room(folder string) (name string, line int) {
	line = -1
	for i, names := range rooms {
		for _, n := range names {
			if within(folder, n) && len(n) > len(name) {
				name, line = n, i
			}
		}
	}
	return name, line
}

func TestImportsGoDownOnly(t *testing.T) {
	eachSource(t, func(s source) {
		if s.test || within(s.folder, "tools") {
			return
		}
		from, fromLine := room(s.folder)
		if from == "" {
			t.Errorf("%s: its folder is no room of ARCHITECTURE.md", s.path)
			return
		}
		s.imports(func(path string) {
			folder, ours := strings.CutPrefix(path, module+"/")
			to, toLine := room(folder)
			switch {
			case !ours || to == from:
			case toLine <= fromLine:
				t.Errorf("%s: %s imports %s, which is not below it in ARCHITECTURE.md", s.path, s.folder, folder)
			case to == "ibverbs/driver" && !within(s.folder, "ibverbs"):
				t.Errorf("%s: the seam is for drivers; ibverbs has its types as aliases", s.path)
			case from == "ibverbs" && to == "ibverbs/softroce":
				t.Errorf("%s: a program that wants softroce imports it; the verbs do not bring it", s.path)
			}
		})
	})
}

// The connection of TCP and the verbs is made above both.
func TestSocketbootStandsAlone(t *testing.T) {
	eachSource(t, func(s source) {
		if s.test || !within(s.folder, "socketboot") {
			return
		}
		s.imports(func(path string) {
			if strings.HasPrefix(path, module) && !strings.HasPrefix(path, module+"/socketboot") {
				t.Errorf("%s imports %s", s.path, path)
			}
		})
	})
}

func TestNoCgoOutsideGPU(t *testing.T) {
	eachSource(t, func(s source) {
		s.imports(func(path string) {
			if path == "C" && !within(s.folder, "gpu") {
				t.Errorf(`%s imports "C"`, s.path)
			}
		})
	})
}

// Tests count too: with cgo off, nothing that is built outside gpu reaches the libraries that load NVIDIA's.
func TestNothingOutsideGPUReachesItsLibraries(t *testing.T) {
	packages := goList(t, "-e", "./...")
	outside := packages[:0:0]
	for _, p := range packages {
		if !within(strings.TrimPrefix(p, module+"/"), "gpu") {
			outside = append(outside, p)
		}
	}
	if len(outside) == 0 {
		t.Fatal("go list found no package")
	}
	for _, tags := range []string{"", "hw"} {
		for _, p := range goList(t, append([]string{"-e", "-deps", "-test", "-tags", tags}, outside...)...) {
			for _, library := range []string{"github.com/ebitengine/purego", "github.com/NVIDIA/go-nvml", "runtime/cgo"} {
				if within(p, library) {
					t.Errorf("packages outside gpu reach %s (tags %q)", p, tags)
				}
			}
		}
	}
}

// A program that wants metrics imports them: the verbs and what stands on them do without Prometheus' client.
func TestNothingBringsInPrometheusUnasked(t *testing.T) {
	const metrics = module + "/ibverbs/metrics"
	var others []string
	for _, p := range goList(t, "-e", "./...") {
		if p != metrics && !within(strings.TrimPrefix(p, module+"/"), "cmd") {
			others = append(others, p)
		}
	}
	for _, p := range goList(t, append([]string{"-e", "-deps"}, others...)...) {
		if p == metrics || within(p, "github.com/prometheus") || within(p, "google.golang.org/protobuf") {
			t.Errorf("packages other than %s reach %s", metrics, p)
		}
	}
	if !slices.Contains(goList(t, "-deps", metrics), "github.com/prometheus/client_golang/prometheus") {
		t.Error("the test does not see what it looks for")
	}
}

func goList(t *testing.T, arguments ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, arguments...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		t.Fatalf("go list: %v\n%s", err, &problem)
	}
	return strings.Fields(out.String())
}
