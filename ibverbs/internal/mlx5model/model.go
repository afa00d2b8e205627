package mlx5model

import (
	"fmt"
	"sync"
)

// Config is what kind of adapter a Model is. The zero value is one with an InfiniBand
// port.
type Config struct {
	// Ethernet makes the port's link one, with addresses of RoCE.
	Ethernet bool
	// Log is told which commands the model lacks and what it refuses. Fault is told what
	// no correct program does: entries, records and queues that an adapter would make
	// nothing of. Both are called under the model's lock, so they must not call the
	// model. Nil is nobody.
	Log, Fault func(string)
	// Asleep leaves the adapter half out: what is posted stays where it is. For benchmarks
	// of posting and polling, which write completions themselves.
	Asleep bool
	// Trace is told what a program does: each ioctl with its attributes, each entry of a
	// queue as it is executed, and each doorbell that is caught as it is rung, with what
	// the records say then. It is called as Log is.
	Trace func(string)
	// Plant is asked for a fault at each request that carries immediate data, by which a
	// program can have a completion with any syndrome. It is called as Log is. Nil plants
	// none.
	Plant func(imm uint32) Planted
}

// Model is one adapter. Its methods may be called by several goroutines.
type Model struct {
	config Config

	mu       sync.Mutex
	contexts map[*context]struct{}
	qps      map[uint32]*qp
	mrs      map[uint32]*mr
	mws      map[uint32]*mw   // by the part of the key that stays
	last     uint32           // number that was given
	watched  map[*qp]struct{} // looked at in each round: those that wait, and those in error
	held     map[*cq]struct{} // CQs that hold an event back
	running  bool             // there is a goroutine of work
	buffer   []byte           // for a message on its way
}

// New makes an adapter that nobody has opened.
func New(c Config) *Model {
	return &Model{config: c, contexts: map[*context]struct{}{}, qps: map[uint32]*qp{}, mrs: map[uint32]*mr{},
		mws: map[uint32]*mw{}, watched: map[*qp]struct{}{}, held: map[*cq]struct{}{}, last: firstNumber}
}

// firstNumber keeps keys, which begin with a number, away from mlx5prm.InvalidLKey.
const firstNumber = 0x40

// number is one that no object of the adapter has. It has 24 bits.
func (m *Model) number() uint32 {
	m.last++
	return m.last & 0xffffff
}

// Left is how many files are open.
func (m *Model) Left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.contexts)
}

func (m *Model) logf(format string, args ...any) {
	if m.config.Log != nil {
		m.config.Log(fmt.Sprintf(format, args...))
	}
}

// faultf tells of a fault of a program's.
func (m *Model) faultf(format string, args ...any) {
	if m.config.Fault != nil {
		m.config.Fault(fmt.Sprintf(format, args...))
	}
}

// warn is logf for those who do not hold the lock.
func (m *Model) warn(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logf(format, args...)
}
