//go:build !linux

package rdmalink

import "errors"

func add(string, string, string) error { return errors.ErrUnsupported }
func del(string) error                 { return errors.ErrUnsupported }
func mode() (string, error)            { return "", errors.ErrUnsupported }
func setMode(string) error             { return errors.ErrUnsupported }
