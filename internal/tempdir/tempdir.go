// Package tempdir makes folders for files of a process that do not stay: also what a killed process has left there goes, with the next one.
package tempdir

import (
	"errors"
	"fmt"
	"os"
	"regexp"
)

// Dir is a folder of this process, for its user alone.
type Dir struct {
	path string
	lock *os.File // open, and locked, as long as the folder is this process's; nil where there are no locks
}

// errSwept says that somebody has taken a folder for one that a killed process left, before it had an owner.
var errSwept = errors.New("the folder was removed as it was made")

// Make makes a folder in os.TempDir whose name begins with prefix, which is for this use alone. Before, it removes those of the same prefix
// that processes of this user have left: directories of the user, for the user alone, that nobody has locked. Others it does not touch.
func Make(prefix string) (*Dir, error) {
	const tries = 100
	in := os.TempDir()
	sweep(in, regexp.MustCompile("^"+regexp.QuoteMeta(prefix)+"[0-9]+$"))
	for try := 1; ; try++ {
		path, err := os.MkdirTemp(in, prefix)
		if err != nil {
			return nil, fmt.Errorf("a folder for temporary files: %w (TMPDIR says where they go: a folder that can be written to)", err)
		}
		lock, err := claim(path)
		if err == nil {
			return &Dir{path, lock}, nil
		}
		if !errors.Is(err, errSwept) || try == tries {
			return nil, errors.Join(err, os.RemoveAll(path))
		}
	}
}

// Path is where it lies.
func (d *Dir) Path() string { return d.path }

// Remove removes the folder and all in it. Others may have done so already.
func (d *Dir) Remove() error {
	err := os.RemoveAll(d.path)
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
		d.lock = nil
	}
	return err
}
