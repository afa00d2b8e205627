package mlx5model

import (
	"syscall"

	"github.com/purerdma/purerdma/ibverbs/internal/uapi"
)

// command is one of the old write interface, as INVOKE_WRITE carries it. in and out are
// the least bytes of its request and its response.
type command struct {
	name    string
	in, out int
	run     func(c *call, request []byte) (response []byte, err error)
}

// commands is filled by init as methods is.
var commands map[uint32]command

func init() {
	commands = map[uint32]command{
		uapi.CmdQueryDevice:                        {"QUERY_DEVICE", 8, 176, (*call).queryDevice},
		uapi.CmdAllocPD:                            {"ALLOC_PD", 8, 4, (*call).allocPD},
		uapi.CmdCreateAH:                           {"CREATE_AH", 56, 4, (*call).createAH},
		uapi.CmdRegMR:                              {"REG_MR", 40, 12, (*call).regMR},
		uapi.CmdReregMR:                            {"REREG_MR", 48, 8, (*call).reregMR},
		uapi.CmdAllocMW:                            {"ALLOC_MW", 16, 8, (*call).allocMW},
		uapi.CmdCreateCompChannel:                  {"CREATE_COMP_CHANNEL", 8, 4, (*call).createCompChannel},
		uapi.CmdResizeCQ:                           {"RESIZE_CQ", 16, 8, (*call).resizeCQ},
		uapi.CmdModifyCQ | uapi.CmdFlagExtended:    {"EX_MODIFY_CQ", 16, 0, (*call).modifyCQ},
		uapi.CmdModifyQP:                           {"MODIFY_QP", 112, 0, (*call).modifyQP},
		uapi.CmdModifyQP | uapi.CmdFlagExtended:    {"EX_MODIFY_QP", 120, 8, (*call).modifyQPWith},
		uapi.CmdQueryQP:                            {"QUERY_QP", 16, 128, (*call).queryQP},
		uapi.CmdAttachMcast:                        {"ATTACH_MCAST", 24, 0, (*call).attachMulticast},
		uapi.CmdDetachMcast:                        {"DETACH_MCAST", 24, 0, (*call).detachMulticast},
		uapi.CmdModifySRQ:                          {"MODIFY_SRQ", 16, 0, (*call).modifySRQ},
		uapi.CmdQuerySRQ:                           {"QUERY_SRQ", 16, 16, (*call).querySRQ},
		uapi.CmdQueryDevice | uapi.CmdFlagExtended: {"EX_QUERY_DEVICE", 8, 176, (*call).exQueryDevice},
	}
}

// commandMask is the bits of a command's number (IB_USER_VERBS_CMD_COMMAND_MASK).
const commandMask = 0xff

func (c *call) invokeWrite() error {
	number := uint32(c.number(uapi.AttrWriteCmd))
	cmd, ok := commands[number]
	switch {
	case number&^(uapi.CmdFlagExtended|commandMask) != 0:
		return syscall.EINVAL
	case !ok:
		c.m.logf("no command %#x", number)
		return syscall.EOPNOTSUPP
	}
	if c.room(uapi.AttrCoreIn) < cmd.in || c.room(uapi.AttrCoreOut) < cmd.out {
		return syscall.ENOSPC
	}
	if !c.ready {
		return syscall.EINVAL
	}
	request, err := c.in(uapi.AttrCoreIn)
	if err != nil {
		return err
	}
	response, err := cmd.run(c, request)
	if err != nil || response == nil {
		return err
	}
	return c.out(uapi.AttrCoreOut, response)
}
