// Package transport connects the ranks of a job: what a rank tells the others of itself, and the transports that move data
// between two of them.
//
// The types of the seam under the transports are those of transport/driver, which only transports import.
package transport

import "github.com/purerdma/purerdma/transport/driver"

type (
	// PeerInfo is what every rank knows of every rank.
	PeerInfo = driver.PeerInfo
	// Transport is one way of moving data between ranks.
	Transport = driver.Transport
	// Connector is one direction of one channel to one peer.
	Connector = driver.Connector
	// Conn is where the data of one direction goes.
	Conn = driver.Conn
	// Verdict answers whether a transport can connect two ranks.
	Verdict = driver.Verdict
	// Blob is what one end of a connection tells the other.
	Blob = driver.Blob
	// Protocol is how data and its arrival are told apart in a buffer.
	Protocol = driver.Protocol
)

// The protocols, numbered as in NCCL.
const (
	LL     = driver.LL
	LL128  = driver.LL128
	Simple = driver.Simple
)
