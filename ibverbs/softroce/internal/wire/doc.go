// Package wire is RoCE v2 as bytes: headers as views on a packet, the table of
// opcodes, the invariant CRC.
//
// # A packet
//
// Here a packet is the payload of one UDP datagram to port 4791: the base
// transport header (BTH), the extended headers that the opcode says, the
// payload, up to three bytes of padding, the ICRC. [Parse] checks the layout of
// what came and [Make] lays out what goes; both give a [Packet], and the
// methods of a Packet give the headers as views on its bytes. Nothing is
// copied, nothing is allocated.
//
//	p := wire.Make(buf, wire.RCWriteOnly, len(data))
//	p.BTH().Put(wire.RCWriteOnly, wire.AckReq, 0xffff, qpn, psn)
//	p.RETH().Put(va, rkey, uint32(len(data)))
//	copy(p.Payload(), data)
//	path.Seal(p.Bytes(), 0)
//
// A view of a header that the opcode does not have is empty, and its methods
// panic as an index out of range does: the opcode is asked first.
//
// # What Parse does not check
//
// It knows no queue pair: whether a payload is as long as the path MTU says,
// whether the opcode fits the one before, keys and addresses are for the caller
// to check, and so is the ICRC ([Path.Verify], [Path.Check]), which needs the
// addresses.
//
// # Sources
//
// IBTA volume 1, chapter 9, and annex A17 (RoCE v2). Where they leave a choice,
// what Linux's rxe puts on the wire.
package wire

// Port is the UDP port of RoCE v2, the destination of every packet.
const Port = 4791
