package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/socketboot/internal/cause"
)

// Meet joins the job. c's ID, Rank and Size are filled in here; rank 0 is the root as well. ctx and c.Timeout bound it: when ctx ends at
// rank 0 the meeting does, and all that have come are told its cause.
func (i Info) Meet(ctx context.Context, c bootstrap.Config) (*bootstrap.Member, error) {
	c.Rank, c.Size = i.Rank, i.Size
	if i.Size == 1 || ctx == nil { // which Join refuses
		return bootstrap.Join(ctx, c)
	}
	if i.Root == "" && i.IDFile == "" {
		return nil, errors.New("launch: Info has neither Root nor IDFile: nothing says where the job meets")
	}
	if c.Timeout < 0 {
		return nil, fmt.Errorf("launch: Config.Timeout is %v, want 0, which means 2 minutes, or more: %w", c.Timeout, syscall.EINVAL)
	}
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if i.Rank == 0 {
		return i.meetAtRoot(ctx, c)
	}
	var err error
	if c.ID, err = i.findID(ctx); err != nil {
		return nil, err
	}
	if i.Root == "" && c.Net.Retry.Times == 0 {
		c.Net.Retry.Times = 5 // rank 0 listened before it wrote the file
	}
	m, err := bootstrap.Join(ctx, c)
	if errors.Is(err, bootstrap.ErrNoRoot) {
		return nil, &bootstrap.RankError{Op: "meet", Rank: 0, Err: err}
	}
	return m, err
}

// meetAtRoot is Meet for rank 0.
func (i Info) meetAtRoot(ctx context.Context, c bootstrap.Config) (*bootstrap.Member, error) {
	root, clean, err := i.openRoot(ctx, c)
	if err != nil {
		return nil, err
	}
	defer clean()
	c.ID = root.ID()
	m, err := bootstrap.Join(ctx, c)
	if err != nil && ctx.Err() != nil {
		fault := fmt.Errorf("rank 0 does not wait any longer: %w", cause.Of(ctx))
		root.Fail(fault)
		if why := root.Err(); why != nil && why != fault { // what the root could not tell anybody
			err = errors.Join(err, why)
		}
	}
	return m, err
}

// openRoot listens, and publishes the id if nobody knows the address.
func (i Info) openRoot(ctx context.Context, c bootstrap.Config) (root *bootstrap.Root, clean func(), err error) {
	// A little less than this rank has for all of it, so that its Join hears the root's word.
	rc := bootstrap.RootConfig{Net: c.Net, Timeout: c.Timeout - c.Timeout/8}
	if i.Root != "" {
		if rc.Net.Bind, err = resolve(ctx, i.Root); err != nil {
			return nil, nil, err
		}
		rc.Fixed = true
	} else if _, err := os.Lstat(i.IDFile); err == nil {
		return nil, nil, fmt.Errorf("launch: %s: %w: it may be of an older job; each job needs a name of its own", i.IDFile, fs.ErrExist)
	}
	if root, err = bootstrap.NewRoot(ctx, rc); err != nil {
		if i.Root != "" {
			err = fmt.Errorf("%w (rank 0 must run on the host of %s)", err, i.Root)
		}
		return nil, nil, err
	}
	if i.Root != "" {
		return root, func() { _ = root.Close() }, nil
	}
	if err := publish(i.IDFile, root.ID()); err != nil {
		_ = root.Close()
		return nil, nil, err
	}
	return root, func() { _, _ = os.Remove(i.IDFile), root.Close() }, nil
}

// publish makes the file appear with its content, and never over another.
func publish(path string, id bootstrap.ID) error {
	fail := func(err error) error { return fmt.Errorf("launch: write the job's id: %w", err) }
	f, err := os.CreateTemp(filepath.Dir(path), ".purerdma-id-*")
	if err != nil {
		return fail(err)
	}
	defer os.Remove(f.Name())
	_, err = fmt.Fprintln(f, id)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fail(err)
	}
	if err := os.Link(f.Name(), path); err != nil {
		return fail(err)
	}
	return nil
}

// findID is the id of the job for a rank other than 0.
func (i Info) findID(ctx context.Context) (bootstrap.ID, error) {
	if i.Root != "" {
		addr, err := resolve(ctx, i.Root)
		return bootstrap.IDFor(addr, 0), err
	}
	for {
		b, err := os.ReadFile(i.IDFile)
		if err == nil {
			id, err := bootstrap.ParseID(strings.TrimSpace(string(b)))
			if err != nil {
				err = fmt.Errorf("launch: %s: %w", i.IDFile, err)
			}
			return id, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return bootstrap.ID{}, fmt.Errorf("launch: read the job's id: %w", err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return bootstrap.ID{}, fmt.Errorf("launch: rank 0 has not written %s: %w", i.IDFile, cause.Of(ctx))
		}
	}
}

// resolve gives the first address of a host, IPv4 before IPv6 as package net has it.
func resolve(ctx context.Context, hostPort string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("launch: %w", err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("launch: port of %s: %w", hostPort, err)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(a.Unmap(), uint16(n)), nil
	}
	var r net.Resolver
	addrs, err := r.LookupNetIP(ctx, "ip", host)
	if err != nil {
		if why := cause.Of(ctx); why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
		return netip.AddrPort{}, fmt.Errorf("launch: the host at which the job meets: %w", err)
	}
	best := addrs[0].Unmap()
	for _, a := range addrs {
		if a = a.Unmap(); a.Is4() {
			best = a
			break
		}
	}
	return netip.AddrPortFrom(best, uint16(n)), nil
}
