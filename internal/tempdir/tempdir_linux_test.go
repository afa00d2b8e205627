package tempdir

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/purerdma/purerdma/internal/leaktest"
)

const prefix = "purerdma-test-"

// childVariable makes a copy of the test binary a process that makes a folder, says where, and waits to be killed.
const childVariable = "PURERDMA_TEMPDIR_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		d, err := Make(prefix)
		if err == nil {
			err = fill(d.Path())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(d.Path())
		_, _ = os.Stdin.Read(make([]byte, 1))
		_ = d.Remove()
		os.Exit(0)
	}
	leaktest.Main(m)
}

func fill(dir string) error {
	return errors.Join(os.Mkdir(filepath.Join(dir, "folder"), 0o700), os.WriteFile(filepath.Join(dir, "folder", "file"), []byte("x"), 0o600))
}

// owner starts a process that has a folder in os.TempDir.
func owner(t *testing.T) (dir string, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("the owner said nothing: %v", cmd.Wait())
	}
	return lines.Text(), sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = in.Close()
	})
}

func make1(t *testing.T) *Dir {
	t.Helper()
	d, err := Make(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func there(t *testing.T, path string, want bool) {
	t.Helper()
	if _, err := os.Lstat(path); (err == nil) != want {
		t.Errorf("%s is there: %v", filepath.Base(path), !want)
	}
}

// What a killed process has left goes when the next folder is made; what a living one has stays.
func TestKilledOwner(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead, kill := owner(t)
	defer kill()
	living, end := owner(t)
	defer end()
	d := make1(t)
	there(t, dead, true)
	kill()
	mine := make1(t)
	there(t, dead, false)
	there(t, living, true)
	there(t, d.Path(), true)
	end()
	if err := errors.Join(d.Remove(), mine.Remove(), make1(t).Remove()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Nothing is touched that Make does not make: other names, what others may enter, files and links, and what those lead to.
func TestOthersStay(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	in := func(name string) string { return filepath.Join(tmp, name) }
	var errs []error
	for _, name := range []string{prefix, prefix + "1x", "x" + prefix + "1", "Purerdma-test-1", prefix + "2", "target"} {
		errs = append(errs, os.Mkdir(in(name), 0o700), fill(in(name)))
	}
	errs = append(errs, os.Chmod(in(prefix+"2"), 0o750), os.Symlink("target", in(prefix+"3")), os.WriteFile(in(prefix+"4"), nil, 0o600))
	left := in(prefix + "5") // a folder that its maker did not come to lock, with a link to what is not the maker's
	errs = append(errs, os.Mkdir(left, 0o700), os.Symlink(in("target"), filepath.Join(left, "link")))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	d := make1(t)
	there(t, left, false)
	for _, name := range []string{prefix, prefix + "1x", "x" + prefix + "1", "Purerdma-test-1", prefix + "2", prefix + "3", prefix + "4",
		"target/folder/file"} {
		there(t, in(name), true)
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
}

// Many that make folders, and so sweep, at the same time leave each other's alone, from before they are locked.
func TestManyAtOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				d, err := Make(prefix)
				if err == nil {
					err = errors.Join(fill(d.Path()), d.Remove())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// The error says which variable leads to a folder that is not there.
func TestMakeNamesTheVariable(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "nowhere"))
	if d, err := Make(prefix); d != nil || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "TMPDIR") {
		t.Error(d, err)
	}
}
