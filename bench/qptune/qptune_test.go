package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/purerdma/purerdma/bench/pair"
	"github.com/purerdma/purerdma/bench/report"
	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/ibverbs/driver/memdriver"
)

var update = flag.Bool("update", false, "write testdata/shape.txt")

// asCommand makes the test binary the command: on devices in memory, as many as the value has characters, or on the machine's.
const (
	asCommand   = "QPTUNE_TEST_DEVICES"
	realDevices = "real"
)

func TestMain(m *testing.M) {
	if pair.Second() {
		os.Exit(second())
	}
	if n, ok := os.LookupEnv(asCommand); ok {
		t := &tool{}
		if n != realDevices {
			t.find = []ibverbs.Option{ibverbs.WithDrivers(fabric(len(n)))}
		}
		os.Exit(t.command().Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

func fabric(devices int) *memdriver.Driver {
	return memdriver.New(memdriver.Config{Devices: make([]memdriver.DeviceConfig, devices)})
}

// command is the command as a process of its own, with this many devices.
func command(t *testing.T, devices int, args ...string) (cmd *exec.Cmd, out, err *bytes.Buffer) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"="+strings.Repeat("x", devices))
	out, err = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, err
	return cmd, out, err
}

// decode wants exactly one document.
func decode(t *testing.T, b []byte) (d map[string]any) {
	t.Helper()
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return d
}

func TestEveryWayOut(t *testing.T) {
	for _, test := range []struct {
		name    string
		devices int
		args    []string
		code    int
		status  report.Status
		err     string
	}{
		{"no device", 0, nil, 1, report.Failed, "bench/qptune/lab"},
		{"no device to serve with", 0, []string{"--server"}, 1, report.Failed, "no such RDMA device"},
		{"unknown device", 1, []string{"-d", "mlx5_7"}, 1, report.Failed, "there are mem0"},
		{"no such port", 1, []string{"-i", "3"}, 1, report.Failed, "it has no port 3"},
		{"no such port of a device", 1, []string{"-d", "mem0", "-i", "3"}, 1, report.Failed, "port 3"},
		{"no such GID", 1, []string{"-d", "mem0", "-x", "77"}, 1, report.Failed, "77"},
		{"no device at the other end", 1, nil, 1, report.Failed, "the other end"},
		{"nobody there", 1, []string{"127.0.0.1:1"}, 1, report.Failed, "start qptune --server there first"},
		{"unknown flag", 1, []string{"--bandwidth"}, 2, report.Usage, "unknown flag"},
		{"sizes", 1, []string{"-s", "8,big"}, 2, report.Usage, `"big"`},
		{"size 0", 1, []string{"-s", "0"}, 2, report.Usage, "message size 0"},
		{"too large", 1, []string{"-s", "2G"}, 2, report.Usage, "message size 2147483648"},
		{"overflow", 1, []string{"-s", "999999999G"}, 2, report.Usage, "1073741824"},
		{"qps", 1, []string{"-q", "1,1"}, 2, report.Usage, "listed twice"},
		{"split", 1, []string{"--split", "perhaps"}, 2, report.Usage, `"perhaps"`},
		{"service level", 1, []string{"-S", "16"}, 2, report.Usage, "service level 16"},
		{"traffic class", 1, []string{"--tclass", "256"}, 2, report.Usage, "traffic class 256"},
		{"timeout", 1, []string{"--timeout", "32"}, 2, report.Usage, "timeout 32"},
		{"MTU", 1, []string{"-m", "1500"}, 2, report.Usage, "MTU 1500"},
		{"budget", 1, []string{"--budget", "1ms"}, 2, report.Usage, "budget 1ms"},
		{"tolerance", 1, []string{"--tolerance", "NaN"}, 2, report.Usage, "tolerance"},
		{"GID index", 1, []string{"-x", "-2"}, 2, report.Usage, "GID index -2"},
		{"server and host", 1, []string{"--server", "host"}, 2, report.Usage, "exclude each other"},
		{"server and sweep", 1, []string{"--server", "-q", "4", "-s", "8"}, 2, report.Usage, "--qps, --sizes"},
		{"two hosts", 1, []string{"--connect", "a", "b"}, 2, report.Usage, "two hosts"},
		{"many hosts", 1, []string{"a", "b"}, 2, report.Usage, "at most one host"},
		{"no host", 1, []string{"--connect", ""}, 2, report.Usage, "host to connect to is empty"},
		{"three devices", 1, []string{"-d", "a,b,c"}, 2, report.Usage, "3 devices"},
		{"TCP port", 1, []string{"-p", "70000", "host"}, 2, report.Usage, "TCP port 70000"},
		{"help", 0, []string{"--help"}, 0, report.Help, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd, out, stderr := command(t, test.devices, append(test.args, "--json")...)
			_ = cmd.Run()
			d := decode(t, out.Bytes())
			if code := cmd.ProcessState.ExitCode(); code != test.code || d["exit_code"] != float64(test.code) || d["status"] != string(test.status) {
				t.Errorf("exit code %d, document says %v %v, want %d %s", code, d["exit_code"], d["status"], test.code, test.status)
			}
			text, _ := d["error"].(string)
			if !strings.Contains(text, test.err) || (text == "") != (test.err == "") || !strings.Contains(stderr.String(), test.err) {
				t.Errorf("error %q, want %q; standard error: %s", text, test.err, stderr)
			}
		})
	}
}

// A server that waits ends by a signal, with its document.
func TestInterrupt(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd, out, _ := command(t, 1, "--server", "-p", "0", "--json")
		cmd.Stderr = nil
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var said []byte
		for b := make([]byte, 1000); !bytes.Contains(said, []byte("waiting at")); {
			n, err := stderr.Read(b)
			if said = append(said, b[:n]...); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		d := decode(t, out.Bytes())
		if cmd.ProcessState.ExitCode() != 1 || d["status"] != string(report.Interrupted) || d["mode"] != "server" || !strings.Contains(d["error"].(string), signal.String()) {
			t.Errorf("%v: %d %v", signal, cmd.ProcessState.ExitCode(), d)
		}
	}
}

// run is a command in this process, which shares the devices with another.
func run(t *testing.T, d *memdriver.Driver, args ...string) (code int, out, err []byte) {
	t.Helper()
	file := func(name string) *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	stdout, stderr := file("out"), file("err")
	code = (&tool{find: []ibverbs.Option{ibverbs.WithDrivers(d)}}).command().Main(args, stdout, stderr)
	for f, into := range map[*os.File]*[]byte{stdout: &out, stderr: &err} {
		b, e := os.ReadFile(f.Name())
		if e != nil {
			t.Fatal(e)
		}
		*into = b
		_ = f.Close()
	}
	return code, out, err
}

// twoHosts runs a server and a sweep over devices in memory.
func twoHosts(t *testing.T, extra ...string) (sweep, serve []byte) {
	t.Helper()
	d := fabric(2)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	_ = l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		code, out, stderr := run(t, d, append([]string{"--server", "-p", port, "-d", "mem1"}, extra...)...)
		if code != 0 {
			t.Errorf("server: %d\n%s", code, stderr)
		}
		serve = out
	}()
	until := time.Now().Add(20 * time.Second)
	for { // a stranger who looks whether somebody listens is dropped
		nc, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = nc.Close()
			break
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	code, sweep, stderr := run(t, d, append([]string{"--connect", "127.0.0.1", "-p", port, "-d", "mem0", "-q", "1,2,4", "-s", "8,4K", "-n", "8", "--rounds", "5", "--seed", "1"}, extra...)...)
	if code != 0 {
		t.Errorf("sweep: %d\n%s", code, stderr)
	}
	<-done
	return sweep, serve
}

func TestTwoHostsText(t *testing.T) {
	sweep, serve := twoHosts(t)
	for _, want := range []string{"from mem0/1", "to   mem1/1", "GID index 1", "UDP ", "4 QPs split", "Gb/s", "p99 µs", "recommended: ", "NCCL_IB_QPS_PER_CONNECTION=", "because", "8 B alone:", "4 KiB alone:"} {
		if !strings.Contains(string(sweep), want) {
			t.Errorf("%q is missing:\n%s", want, sweep)
		}
	}
	if !strings.Contains(string(serve), "served 127.0.0.1: 5 connections") {
		t.Errorf("%s", serve)
	}
	for _, line := range strings.Split(string(sweep), "\n") {
		if n := len([]rune(line)); n > 130 {
			t.Errorf("a line of %d characters: %s", n, line)
		}
	}
}

// The document's shape is what programs rely on: a key that is missing or has another type breaks them.
func TestTwoHostsDocument(t *testing.T) {
	sweep, serve := twoHosts(t, "--json")
	s := decode(t, serve)
	if s["mode"] != "server" || s["served"].(map[string]any)["connections"] != 5.0 || s["results"] == nil {
		t.Errorf("%s", serve)
	}
	d := decode(t, sweep)
	if d["mode"] != "connect" || len(d["connections"].([]any)) != 5 || len(d["results"].([]any)) != 10 || d["rounds_completed"] != 5.0 {
		t.Errorf("%s", sweep)
	}
	d["served"] = s["served"]
	keys := map[string]bool{}
	shape(d, "", keys)
	got := strings.Join(slices.Sorted(maps.Keys(keys)), "\n") + "\n"
	const golden = "testdata/shape.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the shape has changed. Keys may be added (-update), else schemaVersion has to rise:\n%s", got)
	}
}

// shape collects the paths of a document with the types of their values.
func shape(v any, path string, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			shape(x, path+"."+k, into)
		}
	case []any:
		if len(v) == 0 {
			into[path+"[]"] = true
		}
		for _, x := range v {
			shape(x, path+"[]", into)
		}
	case string:
		into[path+" string"] = true
	case bool:
		into[path+" bool"] = true
	case float64:
		into[path+" number"] = true
	case nil:
		into[path+" null"] = true
	}
}

func TestAddress(t *testing.T) {
	for host, want := range map[string]string{"h": "h:18515", "h:1": "h:1", "10.0.0.1": "10.0.0.1:18515", "::1": "[::1]:18515", "[::1]": "[::1]:18515", "[::1]:5": "[::1]:5"} {
		if got := address(host, defaultPort); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}
