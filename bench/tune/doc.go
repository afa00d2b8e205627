// Package tune finds how many queue pairs a connection should have, by trying: the two ends of package nettransport, each in a
// process of its own, measured over every setting and message size.
//
// # Ends
//
// [Sweep] is the end that knows the plan and sends; [Serve] is the other one and does what it is told. They talk over package
// control and trust each other no further than that: what arrives is checked before it is used. An [End] is a device, the buffer
// and the connections, and is the same on both sides.
//
// # Course
//
// All connections are opened first and stay open, so that a round can measure all of them next to each other. Then every case is
// tried out: each message has a pattern of its own that is checked whole, and the time it takes decides how much of it fits into
// the budget. Then come the rounds; of what arrives in them samples are checked. A stream runs from [Sweep] to [Serve] and is
// timed by the sender, from the first message to the completion of the last, which on a reliable connection means that the data
// has arrived. Latency is half of the round trip of a ping-pong over two connections, one for each way, as transports have them.
package tune
