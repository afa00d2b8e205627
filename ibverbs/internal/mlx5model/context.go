package mlx5model

import "syscall"

// context is an open file of the device.
type context struct {
	m       *Model
	mem     memory
	files   files
	ready   bool  // GET_CONTEXT was answered
	version uint8 // cqe_version: with 1 completions name a queue by its user index
	objects map[uint32]any
	handle  uint32 // the last one given
	uars    map[uint32]*uar
	cqs     map[uint32]*cq
	async   eventFile         // of asynchronous events about objects that name no other
	told    map[uint64]uint32 // asynchronous events about an object
	pages   pages
	trapped bool // stores into the pages are caught

	channels []eventFile
}

// pages is the file that the program maps UAR pages of.
type pages interface {
	// register is a place in the page of a UAR.
	register(page, off uint32) *uint64
	close()
}

// storage is what the adapter reads and writes. Addresses that are not there, or do not
// allow it, are EFAULT; ESRCH is of a program that has ended.
type storage interface {
	read(at uint64, b []byte) error
	write(at uint64, b []byte) error
}

// memory is that of a program.
type memory interface {
	storage
	// allows says whether all of a range is mapped, and writable if that is asked.
	allows(at, n uint64, writable bool) bool
	// ended says whether there is none. What the program made is there a little longer,
	// until its files are closed.
	ended() bool
	// export is n bytes of an open file of the program's: EBADF if there is no such file, EINVAL if
	// it has not so many or is no memory.
	export(fd int32, off, n uint64) (exported, error)
}

// files is what a context can give its program.
type files interface {
	// events makes a file of event records for the program. Its number there goes to
	// the address at, size bytes wide, before the program goes on.
	events(at uint64, size int) (eventFile, error)
	// named is the event file that has a number in the program, nil if none has.
	named(fd uint32) eventFile
}

// eventFile is the model's end of a file of event records.
type eventFile interface {
	// post adds a record.
	post(record []byte) error
	// take removes the records that the program has not read, and says which.
	take() [][]byte
	close()
}

// open makes a context for a program. It has no objects yet.
func (m *Model) open(mem memory, f files, p pages, trapped bool) *context {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &context{m: m, mem: mem, files: f, pages: p, trapped: trapped, objects: map[uint32]any{}, uars: map[uint32]*uar{}, cqs: map[uint32]*cq{}, told: map[uint64]uint32{}}
	m.contexts[c] = struct{}{}
	if !m.running && !m.config.Asleep {
		m.running = true
		go m.work()
	}
	return c
}

// close destroys a context and what was made from it.
func (c *context) close() {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	delete(c.m.contexts, c)
	for _, o := range c.objects {
		switch o := o.(type) {
		case *qp:
			o.gone()
		case *mr:
			o.gone()
		case *cq:
			delete(c.m.held, o)
		case *mw:
			delete(c.m.mws, index(o.key))
		}
	}
	clear(c.objects)
	for _, f := range c.channels {
		f.close()
	}
}

// add gives an object a handle.
func (c *context) add(object any) uint32 {
	c.handle++
	c.objects[c.handle] = object
	return c.handle
}

// object is what a handle stands for: ENOENT if nothing, EINVAL if it is of another
// kind.
func object[T any](c *context, handle uint64) (T, error) {
	var none T
	o, ok := c.objects[uint32(handle)]
	if !ok {
		return none, syscall.ENOENT
	}
	v, ok := o.(T)
	if !ok {
		return none, syscall.EINVAL
	}
	return v, nil
}
