/* The script of verbs calls of the differential trace, by libmlx5. script_linux_test.go has
 * the same calls for our driver. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "line %d: %s\n", __LINE__, #x); exit(1); } } while (0)

static char memory[8192] __attribute__((aligned(4096)));
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;

static void await(int n)
{
	struct ibv_wc wc;
	while (n) {
		int got = ibv_poll_cq(cq, 1, &wc);
		MUST(got >= 0);
		MUST(!got || wc.status == IBV_WC_SUCCESS);
		n -= got;
	}
}

static void receive(void)
{
	struct ibv_sge to = {(uintptr_t)memory + 2048, 64, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &to, .num_sge = 1}, *bad;
	MUST(!ibv_post_recv(qp, &wr, &bad));
}

static void send(enum ibv_wr_opcode op, int flags, int receives)
{
	struct ibv_sge sge[2] = {{(uintptr_t)memory, 8, mr->lkey}, {(uintptr_t)memory + 64, 8, mr->lkey}};
	int atomic = op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = sge, .num_sge = atomic || flags & IBV_SEND_INLINE ? 1 : 2, .opcode = op,
		.send_flags = flags | IBV_SEND_SIGNALED, .imm_data = 0x04030201}, *bad;
	if (atomic) {
		wr.wr.atomic.remote_addr = (uintptr_t)memory + 512;
		wr.wr.atomic.rkey = mr->rkey;
		wr.wr.atomic.compare_add = 5;
		wr.wr.atomic.swap = 6;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)memory + 1024;
		wr.wr.rdma.rkey = mr->rkey;
	}
	if (receives)
		receive();
	MUST(!ibv_post_send(qp, &wr, &bad));
	await(1 + receives);
}

int main(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	MUST(list && n == 1);
	struct ibv_context *dev = ibv_open_device(list[0]);
	MUST(dev);
	struct ibv_pd *pd = ibv_alloc_pd(dev);
	MUST(pd);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(dev);
	MUST(channel);
	cq = ibv_create_cq(dev, 15, NULL, channel, 0);
	MUST(cq);
	mr = ibv_reg_mr(pd, memory, sizeof memory, 15);
	MUST(mr);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {8, 8, 2, 2, 32}, .qp_type = IBV_QPT_RC};
	qp = ibv_create_qp(pd, &init);
	MUST(qp);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = 15};
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS));
	struct ibv_qp_attr r = {.qp_state = IBV_QPS_RTR, .ah_attr = {.dlid = 0x11, .port_num = 1}, .path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num, .rq_psn = 7, .max_dest_rd_atomic = 1, .min_rnr_timer = 1};
	MUST(!ibv_modify_qp(qp, &r, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	struct ibv_qp_attr s = {.qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 14, .retry_cnt = 6, .rnr_retry = 7, .max_rd_atomic = 1};
	MUST(!ibv_modify_qp(qp, &s, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_MAX_QP_RD_ATOMIC));
	send(IBV_WR_SEND, 0, 1);
	send(IBV_WR_SEND_WITH_IMM, IBV_SEND_SOLICITED, 1);
	send(IBV_WR_SEND, IBV_SEND_INLINE, 1);
	send(IBV_WR_RDMA_WRITE, 0, 0);
	send(IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, 0);
	send(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 1);
	send(IBV_WR_RDMA_READ, 0, 0);
	send(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0);
	send(IBV_WR_ATOMIC_CMP_AND_SWP, 0, 0);
	send(IBV_WR_SEND, IBV_SEND_FENCE, 1);
	MUST(!ibv_query_qp(qp, &a, IBV_QP_STATE, &init));
	MUST(!ibv_destroy_qp(qp));
	MUST(!ibv_dereg_mr(mr));
	MUST(!ibv_destroy_cq(cq));
	MUST(!ibv_destroy_comp_channel(channel));
	MUST(!ibv_dealloc_pd(pd));
	MUST(!ibv_close_device(dev));
	ibv_free_device_list(list);
	return 0;
}
