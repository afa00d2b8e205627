package softroce

import (
	"fmt"
	"io"
	"os"

	"github.com/purerdma/purerdma/ibverbs/softroce/internal/link"
)

// captureEnv is the environment variable that has the devices of a program which
// imports this package write captures: the start of the files' names.
const captureEnv = "PURERDMA_SOFTROCE_CAPTURE"

// captureFromEnv is Config.Capture of the registered driver.
func captureFromEnv() func(device string) (io.WriteCloser, error) {
	prefix := os.Getenv(captureEnv)
	if prefix == "" {
		return nil
	}
	return func(device string) (io.WriteCloser, error) {
		return os.OpenFile(fmt.Sprintf("%s-%s-%d.pcapng", prefix, device, os.Getpid()), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	}
}

// capturedLink closes the file behind the capture.
type capturedLink struct {
	*link.Capture
	file io.Closer
}

func (c capturedLink) Close() error {
	err := c.Capture.Close()
	if e := c.file.Close(); err == nil {
		err = e
	}
	return err
}

// capture puts a capture around l if one is wanted. On an error l is closed.
func (d *softDriver) capture(l Link, device string) (Link, error) {
	if d.captureTo == nil {
		return l, nil
	}
	file, err := d.captureTo(device)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	c, err := link.NewCapture(l, file, device)
	if err != nil {
		_, _ = l.Close(), file.Close()
		return nil, err
	}
	return capturedLink{c, file}, nil
}
