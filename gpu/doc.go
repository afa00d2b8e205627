// Package gpu is what a GPU driver offers to the transports, and the registry of
// drivers. It depends on nothing: the libraries that load a maker's own live in
// the plug-in, gpu/nvidia for one, which a program imports for its effect:
//
//	import _ "github.com/purerdma/purerdma/gpu/nvidia"
//
// A plug-in that finds no driver on the machine registers all the same and says
// so when it is asked for devices; without a plug-in there are no GPUs, and a
// program that has none never loads a GPU library.
//
// # Contexts and threads
//
// A GPU driver keeps the context of the calls that come in a variable of the
// operating system's thread. The methods of a Context see to that: each may be
// called from any goroutine, and leaves the thread as it found it. For many
// calls in a row Do does it once.
//
// # Memory
//
// Addresses are numbers of type Ptr. What they point to is not the host's: the
// Go program reads and writes it with ReadFrom and WriteTo, or by copies on a
// stream. Host memory takes part once it is registered (RegisterHost): then it
// has a Ptr too. Everything made is closed by who made it, with the call that
// the maker's method names; a Context that is closed frees what is left, as the
// driver does when the process ends.
//
// # Errors
//
// Every error of a driver is an *Error, or wraps one: it names the driver's call,
// its result and the device. A call that the installed driver is too old to have
// gives one with Missing set, which matches errors.ErrUnsupported.
package gpu
