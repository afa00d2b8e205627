//go:build !linux

package link

// sendBatch is how many Datagrams of one socket go at once.
const sendBatch = 32

type sendState struct{}

func setUp(uintptr, *UDPConfig, bool) error { return nil }

// drops is not told.
func drops(uintptr) uint32 { return 0 }

// showClass: package net does not hand it on.
func showClass(uintptr, bool) error { return nil }

// take leaves the socket to package net.
func (s *socket) take() (err error) {
	s.conn = s.udp
	s.raw, err = s.udp.SyscallConn()
	return err
}

// granted believes that the system gives what package net asks for.
func granted(_ uintptr, cfg *UDPConfig) int { return cfg.RecvBuffer }

func newReceiver(u *UDP) receiver {
	u.main.udp.SetReadBuffer(u.cfg.RecvBuffer)
	u.main.udp.SetWriteBuffer(u.cfg.SendBuffer)
	return newPlainReceiver(u)
}

func (s *socket) send(u *UDP, batch []Datagrams) (int, error) { return s.plainSend(u, batch) }

// sendLone: there is no shorter way.
func (s *socket) sendLone(*UDP, *Datagrams) bool { return false }
