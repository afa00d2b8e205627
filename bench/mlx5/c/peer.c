// What posting and polling cost a C program on libmlx5: lists of RDMA writes are posted to a queue pair, and the completions that an
// adapter would write for them are put into the CQ by the program itself, so that nobody else runs meanwhile.
//
//	peer LIST MILLISECONDS    prints nanoseconds per ibv_post_send of LIST requests, and per ibv_poll_cq of up to LIST completions
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH = 256, MOST = 64, LID = 0x11, UIDX = 0 };

static struct ibv_qp *qp;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct mlx5dv_cq ring;
static struct ibv_send_wr requests[MOST];
static struct ibv_sge pieces[MOST];
static struct ibv_wc completions[MOST];
static uint32_t written; // completions

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void open_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	must(list && *list, "no device");
	struct ibv_context *dev = ibv_open_device(*list);
	must(dev != NULL, "open");
	struct ibv_pd *pd = ibv_alloc_pd(dev);
	cq = ibv_create_cq(dev, DEPTH, NULL, NULL, 0);
	void *memory = aligned_alloc(4096, 4096);
	must(pd && cq && memory, "PD, CQ");
	mr = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	qp = ibv_create_qp(pd, &init);
	must(mr && qp, "MR, QP");
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS), "INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = { .dlid = LID, .port_num = 1 } };
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		IBV_QP_MIN_RNR_TIMER), "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
	struct mlx5dv_obj o = { .cq = { .in = cq, .out = &ring } };
	must(!mlx5dv_init_obj(&o, MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	must(ring.cqe_size == 64, "entries of 64 bytes");
}

static void make_list(int n)
{
	for (int i = 0; i < n; i++) {
		pieces[i] = (struct ibv_sge){ (uintptr_t)mr->addr, 64, mr->lkey };
		requests[i] = (struct ibv_send_wr){ .wr_id = i, .next = i + 1 < n ? &requests[i + 1] : NULL, .sg_list = &pieces[i], .num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)mr->addr + 2048, mr->rkey } };
	}
}

// post posts the list.
static int post(void)
{
	struct ibv_send_wr *bad;
	return ibv_post_send(qp, requests, &bad);
}

// poll takes up to n completions.
static int poll(int n)
{
	return ibv_poll_cq(cq, n, completions);
}

// complete writes the completions of the next n requests, each of which is one block of the queue.
static void complete(int n)
{
	for (int i = 0; i < n; i++, written++) {
		struct mlx5_cqe64 *e = (struct mlx5_cqe64 *)((char *)ring.buf + (written & (ring.cqe_cnt - 1)) * 64);
		e->srqn_uidx = htobe32(UIDX);
		e->sop_drop_qpn = htobe32((uint32_t)MLX5_OPCODE_RDMA_WRITE << 24 | qp->qp_num);
		e->wqe_counter = htobe16(written);
		e->op_own = MLX5_CQE_REQ << 4 | !!(written & ring.cqe_cnt);
	}
}

// check stops the program if the last completion of a section is not what it should be.
static void check(int n, int list)
{
	struct ibv_wc *c = &completions[n - 1];
	if (c->status != IBV_WC_SUCCESS || c->opcode != IBV_WC_RDMA_WRITE || c->qp_num != qp->qp_num || c->wr_id != (unsigned)list - 1) {
		fprintf(stderr, "completion of %lu: status %d, opcode %d, QP %#x\n", (unsigned long)c->wr_id, c->status, c->opcode, c->qp_num);
		exit(1);
	}
}

#ifndef NO_MAIN
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int list = argc == 3 ? atoi(argv[1]) : 0;
	if (list < 1 || list > MOST)
		return 2;
	open_all();
	make_list(list);
	// The median of sections of DEPTH requests, as on the other sides: preemption falls into few of them.
	size_t most = 1 << 20, n = 0, calls = DEPTH / list;
	double *posts = malloc(most * sizeof *posts), *polls = malloc(most * sizeof *polls), end = now() + atof(argv[2]) * 1e6, t;
	must(posts && polls, "memory");
	do {
		t = now();
		for (size_t i = 0; i < calls; i++)
			must(!post(), "post");
		posts[n] = (now() - t) / calls;
		complete(DEPTH);
		int got = 0, last = 0;
		t = now();
		for (; got < DEPTH; got += last)
			last = poll(list);
		polls[n] = (now() - t) / calls;
		check(last, list);
		n++;
	} while (now() < end && n < most);
	qsort(posts, n, sizeof *posts, ascending);
	qsort(polls, n, sizeof *polls, ascending);
	printf("%.3f %.3f\n", posts[n / 2], polls[n / 2]);
	return 0;
}
#endif
