#include "status.h"

struct ibv_context *dev;
struct end ends[2];
struct ibv_srq *srq;
struct ibv_ah *ah;

static char memory[2][ROOM] __attribute__((aligned(4096)));
static struct ibv_pd *pd, *other_pd;

static struct { const char *name; int access; struct ibv_mr *mr; } keys[] = {
	{"all", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND},
	{"local", IBV_ACCESS_LOCAL_WRITE},
	{"read", IBV_ACCESS_REMOTE_READ},
	{"other", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE},
};
enum { KEYS = sizeof keys / sizeof *keys };

void begin_device(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	MUST(list && n == 1);
	MUST((dev = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	MUST((pd = ibv_alloc_pd(dev)));
	MUST((other_pd = ibv_alloc_pd(dev)));
	for (int i = 0; i < KEYS; i++)
		MUST((keys[i].mr = ibv_reg_mr(i == KEYS - 1 ? other_pd : pd, memory, sizeof memory, keys[i].access)));
	MUST((ah = ibv_create_ah(pd, &(struct ibv_ah_attr){.dlid = 0x11, .port_num = 1})));
	for (int i = 0; i < 4; i++)
		MUST((ends[i / 2].cq[i % 2] = ibv_create_cq(dev, 31, NULL, NULL, 0)));
}

void end_device(void)
{
	for (int i = 0; i < 4; i++)
		MUST(!ibv_destroy_cq(ends[i / 2].cq[i % 2]));
	MUST(!ibv_destroy_ah(ah));
	for (int i = 0; i < KEYS; i++)
		MUST(!ibv_dereg_mr(keys[i].mr));
	MUST(!ibv_dealloc_pd(other_pd));
	MUST(!ibv_dealloc_pd(pd));
	MUST(!ibv_close_device(dev));
}

/* Receives of B go to an SRQ if it is to be shared. */
void begin_case(enum ibv_qp_type type, int shared)
{
	if (shared)
		MUST((srq = ibv_create_srq(pd, &(struct ibv_srq_init_attr){.attr = {.max_wr = 7, .max_sge = 1}})));
	for (struct end *e = ends; e < ends + 2; e++) {
		struct ibv_qp_init_attr init = {.send_cq = e->cq[SENDS], .recv_cq = e->cq[RECVS], .cap = {8, 8, 1, 1, 0}, .qp_type = type};
		if (e == &ends[1] && shared) {
			init.srq = srq;
			init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
		}
		*e = (struct end){.cq = {e->cq[0], e->cq[1]}, .access = 15, .reads = 4, .gives = 4, .qkey = QKEY};
		MUST((e->qp = ibv_create_qp(pd, &init)));
		MUST((e->mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)));
	}
}

void end_case(void)
{
	for (struct end *e = ends; e < ends + 2; e++) {
		MUST(!ibv_destroy_qp(e->qp));
		MUST(!ibv_dealloc_mw(e->mw));
	}
	MUST(!srq || !ibv_destroy_srq(srq));
	srq = NULL;
}

void set(struct end *e, const char *what, int value)
{
	int *field = !strcmp(what, "access") ? &e->access : !strcmp(what, "reads") ? &e->reads : !strcmp(what, "gives") ? &e->gives :
		!strcmp(what, "qkey") ? &e->qkey : NULL;
	MUST(field);
	*field = value;
}

static void modify(struct end *e, enum ibv_qp_state state, struct ibv_qp_attr a, int mask)
{
	a.qp_state = state;
	MUST(!ibv_modify_qp(e->qp, &a, mask | IBV_QP_STATE));
}

void move(struct end *e, const char *state)
{
	if (!strcmp(state, "RTS"))
		modify(e, IBV_QPS_RTS, (struct ibv_qp_attr){.cur_qp_state = IBV_QPS_SQE}, IBV_QP_CUR_STATE);
	else
		modify(e, !strcmp(state, "ERR") ? IBV_QPS_ERR : IBV_QPS_RESET, (struct ibv_qp_attr){}, 0);
}

/* Connects an end to the other. */
void join(struct end *e)
{
	uint32_t peer = ends[e == ends].qp->qp_num;
	int rc = e->qp->qp_type == IBV_QPT_RC;
	if (e->qp->qp_type == IBV_QPT_UD) {
		modify(e, IBV_QPS_INIT, (struct ibv_qp_attr){.port_num = 1, .qkey = e->qkey}, IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY);
		modify(e, IBV_QPS_RTR, (struct ibv_qp_attr){}, 0);
		modify(e, IBV_QPS_RTS, (struct ibv_qp_attr){}, IBV_QP_SQ_PSN);
		return;
	}
	modify(e, IBV_QPS_INIT, (struct ibv_qp_attr){.port_num = 1, .qp_access_flags = e->access}, IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	modify(e, IBV_QPS_RTR, (struct ibv_qp_attr){.ah_attr = {.dlid = 0x11, .port_num = 1}, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
		.max_dest_rd_atomic = e->gives, .min_rnr_timer = 1}, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		(rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	modify(e, IBV_QPS_RTS, (struct ibv_qp_attr){.timeout = 1, .retry_cnt = 1, .rnr_retry = 1, .max_rd_atomic = e->reads},
		IBV_QP_SQ_PSN | (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
}

struct ibv_sge at(struct end *e, uint32_t length, const char *key)
{
	struct ibv_mr *mr = memory_of(key);
	return (struct ibv_sge){(uintptr_t)memory[e - ends], length, mr ? mr->lkey : NO_KEY};
}

/* The registration of a key, NULL if there is none. */
struct ibv_mr *memory_of(const char *key)
{
	for (int i = 0; i < KEYS; i++)
		if (!strcmp(keys[i].name, key))
			return keys[i].mr;
	return NULL;
}

/* The key that the peer names, or that of B's window. */
uint32_t rkey_of(const char *key)
{
	if (!strcmp(key, "window"))
		return ibv_inc_rkey(ends[1].mw->rkey);
	struct ibv_mr *mr = memory_of(key);
	return mr ? mr->rkey : NO_KEY;
}
