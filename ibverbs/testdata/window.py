# The other end of TestWindowsWithRDMACore, on rdma-core's own bindings: window.py DEVICE PORT GID_INDEX MTU. Both ends talk in lines.
import ipaddress
import sys
import time

try:
    from pyverbs.addr import AHAttr, GID, GlobalRoute
    from pyverbs.cq import CQ
    from pyverbs.device import Context
    from pyverbs.mr import MR, MW, MWBindInfo
    from pyverbs.pd import PD
    from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
    from pyverbs.wr import RecvWR, SendWR, SGE
    import pyverbs.enums as e
except ImportError as err:
    print(err, file=sys.stderr)
    sys.exit(77)

device, port, gid_index, mtu = sys.argv[1], *map(int, sys.argv[2:])
context = Context(name=device)
pd = PD(context)
cq = CQ(context, 16)
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_MW_BIND)
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=8, max_recv_wr=8)))


def say(*words):
    print(*words, flush=True)


def completion(status=e.IBV_WC_SUCCESS):
    for _ in range(20000):
        n, wcs = cq.poll(1)
        if n:
            assert wcs[0].status == status, wcs[0]
            return wcs[0]
        time.sleep(0.001)
    sys.exit("no completion")


say(qp.qp_num, context.query_gid(port, gid_index))
peer_qpn, peer_gid = input().split()
way = AHAttr(gr=GlobalRoute(dgid=GID(ipaddress.ip_address(peer_gid).exploded), sgid_index=gid_index, hop_limit=64), is_global=1, port_num=port)
attr = QPAttr(port_num=port)
attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
attr.dest_qp_num, attr.path_mtu, attr.ah_attr = int(peer_qpn), mtu, way
attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 18, 6, 7
qp.to_rts(attr)

# Our window: the peer writes into it and takes it back.
mw = MW(pd, e.IBV_MW_TYPE_2)
bind = SendWR(opcode=e.IBV_WR_BIND_MW, send_flags=e.IBV_SEND_SIGNALED)
bind.set_bind_wr(mw, MWBindInfo(mr, mr.buf, 1024, e.IBV_ACCESS_REMOTE_WRITE))
qp.post_send(bind)
completion()
qp.post_recv(RecvWR(num_sge=1, sg=[SGE(mr.buf + 2048, 64, mr.lkey)]))
say(mr.buf, bind.rkey)
taken = completion()
say(taken.imm_data, mr.read(6, 0).decode())

# The peer's: we do the same, and then write with the key that is no longer valid.
addr, rkey = map(int, input().split())
mr.write('from C', 6)
for opcode, imm, status in (
    (e.IBV_WR_RDMA_WRITE, 0, e.IBV_WC_SUCCESS),
    (e.IBV_WR_SEND_WITH_INV, rkey, e.IBV_WC_SUCCESS),
    (e.IBV_WR_RDMA_WRITE, 0, e.IBV_WC_REM_ACCESS_ERR),
):
    wr = SendWR(opcode=opcode, num_sge=1, imm_data=imm, sg=[SGE(mr.buf, 6, mr.lkey)], send_flags=e.IBV_SEND_SIGNALED)
    if opcode == e.IBV_WR_RDMA_WRITE:
        wr.set_wr_rdma(rkey, addr)
    qp.post_send(wr)
    completion(status)
say('done')
