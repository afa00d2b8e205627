package shmtransport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/purerdma/purerdma/internal/cause"
	"github.com/purerdma/purerdma/internal/offheap"
)

// DefaultDir is where files of shared memory lie.
const DefaultDir = "/dev/shm"

// A file's two ends each hold a lock of the open file description on a byte past its end: the maker on the first, the other one on the
// second. The kernel lets go of it when a process ends, however it ends, and whoever else has the file open can ask. That needs no pid,
// which in another pid namespace would be another's.
const (
	lockMaker = iota
	lockOther

	// watchEvery is how often each end asks after the other.
	watchEvery = 200 * time.Millisecond
)

func orDefaultDir(dir string) string {
	if dir == "" {
		return DefaultDir
	}
	return dir
}

// File is memory of a connection in a file that no other process has attached yet.
type File struct {
	name, path string
	file       *os.File
	span       offheap.Span
	options    options
}

var fileName = regexp.MustCompile(`^nccl-[A-Za-z0-9]{6}$`)

// MakeFile makes memory in a file of dir ("" = DefaultDir), named nccl-XXXXXX as NCCL does, for the owner alone. The file gets its name
// when it is complete, and only if nothing has that name; what lies under other names is not touched, but for files that a process of
// this user left there when it was killed: those are removed. All pages are reserved: too little room is an error that says how much
// there is.
func MakeFile(dir string, opts ...Option) (*File, error) { return makeFile(dir, newOptions(opts)) }

func makeFile(dir string, o options) (*File, error) {
	dir = orDefaultDir(dir)
	if err := o.check(); err != nil {
		return nil, err
	}
	sweep(dir)
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fileError("make a file in", dir, os.NewSyscallError("open", err))
	}
	f := &File{file: os.NewFile(uintptr(fd), filepath.Join(dir, "(unnamed)")), options: o}
	if err := f.fill(dir); err != nil {
		return nil, errors.Join(fileError("make a file in", dir, err), f.Close())
	}
	return f, nil
}

func (f *File) fill(dir string) (err error) {
	fd := int(f.file.Fd())
	if err := lock(fd, lockMaker); err != nil {
		return err
	}
	if f.span, err = reserve(fd, f.options.geometry); err != nil {
		return err
	}
	if err := f.options.use(fd, f.options.geometry); err != nil {
		return err
	}
	h, _ := views(f.span, f.options.geometry)
	h.barriers[lockMaker] = canBarrier()
	const tries = 100
	for range tries {
		name := "nccl-" + f.options.names()
		path := filepath.Join(dir, name)
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
		if err == nil {
			f.name, f.path = name, path
			return nil
		}
		if err != unix.EEXIST {
			break
		}
	}
	return os.NewSyscallError("linkat", err)
}

// fileError says what people can do about a directory of shared memory.
func fileError(what, dir string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.ENOSPC):
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil {
			hint = fmt.Sprintf("; %d bytes are free of %d", st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize))
		}
		hint += ": a container's /dev/shm grows with --shm-size or an emptyDir of medium Memory; memory passed over a socket needs none"
	case errors.Is(err, unix.EROFS):
		hint = ": it is mounted read-only; memory passed over a socket needs none"
	case errors.Is(err, unix.EOPNOTSUPP):
		hint = ": its file system has no unnamed files; use a tmpfs"
	}
	return fmt.Errorf("shared memory: %s %s: %w%s", what, dir, err, hint)
}

// Name is what the other process needs to know, beside the directory: nccl-XXXXXX.
func (f *File) Name() string { return f.name }

// Attached waits until the other process has attached the file, and gives this end of the connection. The File is spent then, also
// after an error.
func (f *File) Attached(ctx context.Context) (*Conn, error) {
	const step, most = 100 * time.Microsecond, 10 * time.Millisecond
	late := func() error {
		return errors.Join(fmt.Errorf("shared memory: no other process has attached %s: %w", f.path, cause.Of(ctx)), f.Close())
	}
	switch {
	case f.file == nil:
		return nil, fmt.Errorf("shared memory: a file that is spent: %w", ErrClosed)
	case ctx == nil:
		return nil, late()
	}
	for d := step; !f.attached(); d = min(2*d, most) {
		select {
		case <-ctx.Done():
			return nil, late()
		case <-time.After(d):
		}
	}
	return f.conn()
}

// attached reports whether the other process has mapped the file.
func (f *File) attached() bool {
	h, _ := views(f.span, f.options.geometry)
	return atomic.LoadUint32(&h.attached) != 0
}

// conn is the connection of a file that is attached.
func (f *File) conn() (*Conn, error) {
	if err := f.span.Retain(); err != nil { // for the link
		return nil, errors.Join(err, f.Close())
	}
	c := joinedByFile(f.file, f.span, f.options.geometry, lockMaker)
	*f = File{}
	return c, nil
}

// canBarrier is what a header says.
func canBarrier() uint32 {
	if barriers() {
		return 1
	}
	return 0
}

// Close removes a file that nobody attached. A second call is nil.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	var errs []error
	if f.path != "" {
		if err := unix.Unlink(f.path); err != nil && err != unix.ENOENT {
			errs = append(errs, &fs.PathError{Op: "unlink", Path: f.path, Err: err})
		}
	}
	errs = append(errs, f.span.Release(), f.file.Close())
	*f = File{}
	return errors.Join(errs...)
}

// AttachFile attaches the file that another process made in dir ("" = DefaultDir) and removes its name: from there on nothing can be
// left behind. The file is checked before it is mapped: a regular one, of this user, for this user alone, with one name, of the size
// that its header speaks of.
func AttachFile(dir, name string) (*Conn, error) { return attachFile(dir, name, options{}) }

func attachFile(dir, name string, o options) (*Conn, error) {
	dir = orDefaultDir(dir)
	if !fileName.MatchString(name) {
		return nil, fmt.Errorf("shared memory: %q is no name of a file: want nccl- and 6 letters or digits", name)
	}
	path := filepath.Join(dir, name)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "attach shared memory", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	c, err := attachChecked(file, path, o)
	if err != nil {
		return nil, errors.Join(&fs.PathError{Op: "attach shared memory", Path: path, Err: err}, file.Close())
	}
	return c, nil
}

func attachChecked(file *os.File, path string, o options) (*Conn, error) {
	fd := int(file.Fd())
	if err := ours(fd); err != nil {
		return nil, err
	}
	span, g, err := attach(fd)
	if err != nil {
		return nil, err
	}
	if err := o.use(fd, g); err != nil {
		return nil, errors.Join(err, span.Release())
	}
	h, _ := views(span, g)
	if held, err := locked(fd, lockMaker); err != nil || !held {
		return nil, errors.Join(fmt.Errorf("its maker is gone: %w", ErrPeerGone), err, span.Release())
	}
	if err := lock(fd, lockOther); err != nil {
		return nil, errors.Join(fmt.Errorf("another process has attached it: %w", err), span.Release())
	}
	if err := unix.Unlink(path); err != nil && err != unix.ENOENT {
		return nil, errors.Join(os.NewSyscallError("unlink", err), span.Release())
	}
	if err := span.Retain(); err != nil { // for the link
		return nil, errors.Join(err, span.Release())
	}
	h.barriers[lockOther] = canBarrier()
	atomic.StoreUint32(&h.attached, 1)
	return joinedByFile(file, span, g, lockOther), nil
}

// ours checks that a file is one that only this user can have made.
func ours(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%w: mode %#o, want a regular file", errGeometry, st.Mode)
	case st.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("%w: it belongs to user %d: %w", errGeometry, st.Uid, unix.EPERM)
	case st.Mode&0o077 != 0:
		return fmt.Errorf("%w: mode %#o lets others in: %w", errGeometry, st.Mode, unix.EPERM)
	case st.Nlink > 1:
		return fmt.Errorf("%w: it has %d names", errGeometry, st.Nlink)
	}
	return nil
}

// flock is the lock of one end; what it is on lies past the end of any file here.
func flock(which int) unix.Flock_t {
	return unix.Flock_t{Type: unix.F_WRLCK, Whence: unix.SEEK_SET, Start: 1<<62 + int64(which), Len: 1}
}

func lock(fd, which int) error {
	l := flock(which)
	return os.NewSyscallError("fcntl(F_OFD_SETLK)", unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &l))
}

// locked reports whether somebody else holds a lock.
func locked(fd, which int) (bool, error) {
	l := flock(which)
	err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &l)
	return l.Type != unix.F_UNLCK, os.NewSyscallError("fcntl(F_OFD_GETLK)", err)
}

// sweep removes the files whose maker was killed before the other process had attached them: their names are ours and nobody holds their
// locks. A file gets its name only when it is locked.
func sweep(dir string) {
	paths, err := filepath.Glob(filepath.Join(dir, "nccl-??????"))
	if err != nil {
		return
	}
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if stale(fd) {
			_ = unix.Unlink(path)
		}
		_ = unix.Close(fd)
	}
}

func stale(fd int) bool {
	var text [len(headerMagic)]byte
	if n, err := unix.Pread(fd, text[:], 0); err != nil || n != len(text) || string(text[:]) != headerMagic || ours(fd) != nil {
		return false
	}
	for _, which := range []int{lockMaker, lockOther} {
		if held, err := locked(fd, which); err != nil || held {
			return false
		}
	}
	return true
}

// fileLink is the link of a connection by a file. It has a reference to the memory.
type fileLink struct {
	file *os.File
	span offheap.Span
	h    *header
	me   int // lockMaker or lockOther
	life *life
	stop chan struct{}
	over sync.WaitGroup
}

// joinedByFile makes a connection and gives it its link. A goroutine asks a few times a second whether the other process holds its lock.
func joinedByFile(file *os.File, span offheap.Span, g geometry, me int) *Conn {
	h, _ := views(span, g)
	both := atomic.LoadUint32(&h.barriers[lockMaker]) == 1 && atomic.LoadUint32(&h.barriers[lockOther]) == 1
	c := newConn(span, g, me == lockMaker, !both, Peer{UID: uint32(os.Geteuid())})
	x := &fileLink{file: file, span: span, h: h, me: me, life: c.life, stop: make(chan struct{})}
	c.link = x
	x.over.Go(x.watch)
	return c
}

func (x *fileLink) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	other := 1 - x.me
	for {
		select {
		case <-x.stop:
			return
		case <-tick.C:
		}
		if held, err := locked(int(x.file.Fd()), other); err != nil || held {
			continue
		}
		how := uint32(gone)
		if atomic.LoadUint32(&x.h.left[other]) == 1 {
			how = done
		}
		x.life.end(how, nil)
		return
	}
}

// close implements [link].
func (x *fileLink) close() error {
	close(x.stop)
	x.over.Wait()
	atomic.StoreUint32(&x.h.left[x.me], 1)
	return errors.Join(x.span.Release(), x.file.Close())
}
