package tempdir

import (
	"errors"
	"os"
	"regexp"

	"golang.org/x/sys/unix"
)

// A folder belongs to the process that has it open and locked (flock), of which the kernel lets go when the process ends, however it ends.
// Who has the lock, and finds the folder still there under its name, may remove it; who makes one does not use it before the same is so.
// So of two that want to remove it one does, and none removes what has an owner.

const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// claim makes a new folder this process's. The file is nil where the file system has no locks: there nobody sweeps.
func claim(path string) (*os.File, error) {
	fd, err := unix.Open(path, flags, 0)
	if err == unix.ENOENT {
		return nil, errSwept
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	switch err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); {
	case err == unix.EWOULDBLOCK, err == nil && !named(fd, unix.AT_FDCWD, path):
		return nil, errors.Join(errSwept, f.Close())
	case err != nil:
		return nil, f.Close()
	}
	return f, nil
}

// sweep removes the folders that no process has any more. What cannot be removed stays.
func sweep(in string, names *regexp.Regexp) {
	root, err := os.OpenRoot(in)
	if err != nil {
		return
	}
	defer root.Close()
	f, err := root.Open(".")
	if err != nil {
		return
	}
	defer f.Close()
	all, _ := f.Readdirnames(-1)
	for _, name := range all {
		if names.MatchString(name) {
			sweepOne(root, f, name)
		}
	}
}

func sweepOne(root *os.Root, in *os.File, name string) {
	at := int(in.Fd())
	fd, err := unix.Openat(at, name, flags, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	var outer, st unix.Stat_t
	if unix.Fstat(at, &outer) != nil || unix.Fstat(fd, &st) != nil || st.Uid != uint32(os.Geteuid()) || st.Mode&0o077 != 0 || st.Dev != outer.Dev {
		return
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil && named(fd, at, name) {
		_ = root.RemoveAll(name)
	}
}

// named says that an open folder is the one of a name.
func named(fd, at int, name string) bool {
	var a, b unix.Stat_t
	return unix.Fstat(fd, &a) == nil && unix.Fstatat(at, name, &b, unix.AT_SYMLINK_NOFOLLOW) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}
