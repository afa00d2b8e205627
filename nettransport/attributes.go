package nettransport

import (
	"fmt"

	"github.com/purerdma/purerdma/ibverbs"
	"github.com/purerdma/purerdma/qp"
	"github.com/purerdma/purerdma/socketboot"
)

// checkQPs refuses attributes with which a connection would be made and then not work.
func (c *Config) checkQPs() error {
	for _, end := range []struct {
		field string
		opts  []qp.Option
	}{{"QP", c.QP}, {"RecvQP", append(c.QP[:len(c.QP):len(c.QP)], c.RecvQP...)}} {
		p := applied(end.opts)
		if err := p.Check(); err != nil {
			return refusedConfig(end.field, err)
		}
		if what := c.unfit(end.opts); what != "" {
			return configError(end.field, what)
		}
		if c.EachQP == nil {
			continue
		}
		for q := range socketboot.MaxQPs {
			own := append([]qp.Option{qp.WithPort(1)}, c.EachQP(q)...)
			p := applied(own)
			if err := p.Check(); err != nil {
				return refusedConfig("EachQP", fmt.Errorf("for queue pair %d: %w", q, err))
			}
			if p.Port != 1 {
				return configError("EachQP", fmt.Sprintf("gives queue pair %d another port; ports are chosen by NICs", q))
			}
			if what := c.unfit(append(end.opts[:len(end.opts):len(end.opts)], own...)); what != "" {
				return configError("EachQP", fmt.Sprintf("for queue pair %d: %s", q, what))
			}
		}
	}
	return nil
}

func applied(opts []qp.Option) qp.Params {
	p := qp.Defaults()
	for _, o := range opts {
		if o != nil {
			o(&p)
		}
	}
	return p
}

// unfit says what about the attributes does not go with the protocol, "" if all does.
func (c *Config) unfit(opts []qp.Option) string {
	first := []qp.Option{qp.WithDepth(sendDepth, recvDepth)}
	if c.Inline {
		first = append(first, qp.WithInline(inline))
	}
	switch p := applied(append(first, opts...)); {
	case p.SendPSN != 0:
		return fmt.Sprintf("sets the first PSN to %#x: the handshake has no field for it, so it is 0", p.SendPSN)
	case p.SendDepth < sendDepth || p.RecvDepth < recvDepth:
		return fmt.Sprintf("sets depths of %d and %d, a connection needs %d and %d", p.SendDepth, p.RecvDepth, sendDepth, recvDepth)
	case p.SGEs < 1:
		return fmt.Sprintf("sets %d entries a request, a connection needs one", p.SGEs)
	case p.Access&ibverbs.RemoteWrite == 0:
		return "takes away RemoteWrite, by which messages and credits come"
	case c.Inline && p.Inline < inline:
		return fmt.Sprintf("sets %d bytes of inline data, Config.Inline needs %d", p.Inline, inline)
	}
	return ""
}
