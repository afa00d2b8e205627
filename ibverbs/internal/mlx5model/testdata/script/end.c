#include "script.h"

char memory[8192] __attribute__((aligned(4096)));
struct ibv_pd *pd;
struct ibv_comp_channel *channel;
struct ibv_cq *cq;
struct ibv_qp *qp;
struct ibv_srq *srq;
struct ibv_mr *mr;
struct ibv_ah *ah[2];

static struct ibv_context *dev;

static void modify(enum ibv_qp_state state, struct ibv_qp_attr a, int mask)
{
	a.qp_state = state;
	MUST(!ibv_modify_qp(qp, &a, mask | IBV_QP_STATE));
}

/* The address of the port itself. */
static struct ibv_ah_attr self(int ethernet)
{
	struct ibv_ah_attr a = {.dlid = 0x11, .port_num = 1};
	if (ethernet) {
		a = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .sl = 2, .grh = {.flow_label = 0x54321, .sgid_index = 1, .hop_limit = 3, .traffic_class = 7}};
		MUST(!ibv_query_gid(dev, 1, 1, &a.grh.dgid));
	}
	return a;
}

static void connect_to_self(const struct props *k)
{
	int remote = k->access ? k->access : 15;
	if (k->type == IBV_QPT_UD) {
		modify(IBV_QPS_INIT, (struct ibv_qp_attr){.port_num = 1, .qkey = 0x11111111}, IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY);
		modify(IBV_QPS_RTR, (struct ibv_qp_attr){}, 0);
		modify(IBV_QPS_RTS, (struct ibv_qp_attr){.sq_psn = 7}, IBV_QP_SQ_PSN);
		return;
	}
	int rc = k->type == IBV_QPT_RC;
	modify(IBV_QPS_INIT, (struct ibv_qp_attr){.port_num = 1, .qp_access_flags = remote}, IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	modify(IBV_QPS_RTR, (struct ibv_qp_attr){.ah_attr = self(k->ethernet), .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .rq_psn = 7,
		.max_dest_rd_atomic = rc, .min_rnr_timer = rc}, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		(rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	modify(IBV_QPS_RTS, (struct ibv_qp_attr){.sq_psn = 7, .timeout = 14 * rc, .retry_cnt = 6 * rc, .rnr_retry = 7 * rc, .max_rd_atomic = rc},
		IBV_QP_SQ_PSN | (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
}

static void make_addresses(int ethernet)
{
	struct ibv_ah_attr a = self(ethernet);
	MUST((ah[0] = ibv_create_ah(pd, &a)));
	if (ethernet) {
		a.grh.sgid_index = 2;
		a.grh.flow_label = 0x00123;
		a.static_rate = IBV_RATE_10_GBPS;
	} else {
		a.is_global = 1;
		a.sl = 5;
		a.src_path_bits = 3;
		a.grh = (struct ibv_global_route){.flow_label = 0x54321, .hop_limit = 3, .traffic_class = 7};
	}
	MUST(!ibv_query_gid(dev, 1, a.grh.sgid_index, &a.grh.dgid));
	MUST((ah[1] = ibv_create_ah(pd, &a)));
}

void begin(const struct props *k)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	MUST(list && n == 1);
	MUST((dev = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	MUST((pd = ibv_alloc_pd(dev)));
	MUST((channel = ibv_create_comp_channel(dev)));
	MUST((cq = ibv_create_cq(dev, k->depth ? k->depth : 15, NULL, channel, 0)));
	MUST((mr = ibv_reg_mr(pd, memory, sizeof memory, k->access ? k->access : 15)));
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {8, 8, 2, 2, 32}, .qp_type = k->type};
	if (k->cap.max_send_wr)
		init.cap = k->cap;
	if (k->srq_wr) {
		struct ibv_srq_init_attr s = {.attr = {.max_wr = k->srq_wr, .max_sge = k->srq_sge}};
		MUST((srq = ibv_create_srq(pd, &s)));
		init.srq = srq;
		init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
	}
	MUST((qp = ibv_create_qp(pd, &init)));
	if (k->type == IBV_QPT_UD)
		make_addresses(k->ethernet);
	if (k->options) {
		struct ibv_ece e;
		MUST(!ibv_query_ece(qp, &e));
		MUST(!ibv_set_ece(qp, &e));
	}
	connect_to_self(k);
}

void end(void)
{
	for (int i = 0; i < 2; i++)
		MUST(!ah[i] || !ibv_destroy_ah(ah[i]));
	MUST(!ibv_destroy_qp(qp));
	MUST(!srq || !ibv_destroy_srq(srq));
	MUST(!ibv_dereg_mr(mr));
	MUST(!ibv_destroy_cq(cq));
	MUST(!ibv_destroy_comp_channel(channel));
	MUST(!ibv_dealloc_pd(pd));
	MUST(!ibv_close_device(dev));
}

struct ibv_sge at(int offset, uint32_t length)
{
	return (struct ibv_sge){(uintptr_t)memory + offset, length, mr->lkey};
}

/* A request, whose list is two. */
struct ibv_send_wr request(const struct one *o, struct ibv_sge *two)
{
	two[0] = at(0, 8);
	two[1] = at(64, 8);
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = two, .num_sge = 2, .opcode = o->op, .send_flags = o->flags, .imm_data = htonl(0x01020304)};
	if (o->flags & IBV_SEND_INLINE) {
		two[0] = at(0, o->length);
		wr.num_sge = 1;
	}
	if (o->op == IBV_WR_ATOMIC_FETCH_AND_ADD || o->op == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.num_sge = 1;
		wr.wr.atomic.remote_addr = (uintptr_t)memory + 512;
		wr.wr.atomic.rkey = mr->rkey;
		wr.wr.atomic.compare_add = 5;
		wr.wr.atomic.swap = 6;
	} else if (qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = ah[0];
		wr.wr.ud.remote_qpn = qp->qp_num;
		wr.wr.ud.remote_qkey = 0x11111111;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)memory + 1024;
		wr.wr.rdma.rkey = mr->rkey;
	}
	return wr;
}

void post(struct ibv_send_wr *wrs, int n)
{
	struct ibv_send_wr *bad;
	for (int i = 0; i < n - 1; i++)
		wrs[i].next = &wrs[i + 1];
	MUST(!ibv_post_send(qp, wrs, &bad));
}

/* A list of n receives of so many parts each, of 128 bytes. */
void receive(int n, const int *parts)
{
	struct ibv_sge sge[8][4];
	struct ibv_recv_wr wrs[8] = {}, *bad;
	for (int i = 0; i < n; i++) {
		for (int j = 0; j < parts[i]; j++)
			sge[i][j] = at(2048 + 512 * i + 128 * j, 128);
		wrs[i] = (struct ibv_recv_wr){.wr_id = 1, .sg_list = sge[i], .num_sge = parts[i], .next = i + 1 < n ? &wrs[i + 1] : NULL};
	}
	MUST(!(srq ? ibv_post_srq_recv(srq, wrs, &bad) : ibv_post_recv(qp, wrs, &bad)));
}

void await(int n)
{
	struct ibv_wc wc;
	while (n) {
		int got = ibv_poll_cq(cq, 1, &wc);
		MUST(got >= 0);
		MUST(!got || wc.status == IBV_WC_SUCCESS);
		n -= got;
	}
}

/* Requests one after the other, each signaled, behind the receives that they need. */
void each(const struct one *o, int n)
{
	for (; n--; o++) {
		struct one signaled = *o;
		signaled.flags |= IBV_SEND_SIGNALED;
		struct ibv_sge two[2];
		struct ibv_send_wr wr = request(&signaled, two);
		if (o->receives)
			receive(1, (int[]){1});
		post(&wr, 1);
		await(1 + o->receives);
	}
}
