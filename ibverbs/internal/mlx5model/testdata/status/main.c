/* Plays a script of statuses by libmlx5, and says what came of each of its cases. The
 * script is that of statusplay_linux_test.go, which has the same for our driver. */
#include "status.h"

static struct ibv_send_wr wrs[8];
static struct ibv_sge lists[8];
static int count;
static struct end *poster;

static void come(const struct ibv_wc *wc, struct end *e, int queue)
{
	MUST(wc->qp_num == e->qp->qp_num);
	printf("wc %c %d %d %d %d\n", 'A' + (int)(e - ends), queue, (int)wc->wr_id, wc->status, wc->status ? wc->vendor_err : 0);
}

static void await(struct end *e, int queue, int n)
{
	struct ibv_wc wc;
	while (n) {
		int got = ibv_poll_cq(e->cq[queue], 1, &wc);
		MUST(got >= 0);
		if (got)
			come(&wc, e, queue);
		else
			sched_yield();
		n -= got;
	}
}

static void receive(struct end *e, int id, uint32_t length, const char *key)
{
	struct ibv_sge list = at(e, length, key);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &list, .num_sge = 1}, *bad;
	MUST(!(e == &ends[1] && srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad)));
}

static const struct { const char *name; enum ibv_wr_opcode op; } ops[] = {
	{"send", IBV_WR_SEND}, {"imm", IBV_WR_SEND_WITH_IMM}, {"write", IBV_WR_RDMA_WRITE}, {"writeimm", IBV_WR_RDMA_WRITE_WITH_IMM},
	{"read", IBV_WR_RDMA_READ}, {"add", IBV_WR_ATOMIC_FETCH_AND_ADD}, {"swap", IBV_WR_ATOMIC_CMP_AND_SWP}, {"bind", IBV_WR_BIND_MW},
	{"free", IBV_WR_LOCAL_INV}, {"sendinv", IBV_WR_SEND_WITH_INV},
};

static enum ibv_wr_opcode operation(const char *name)
{
	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
		if (!strcmp(ops[i].name, name))
			return ops[i].op;
	fprintf(stderr, "no operation %s\n", name);
	exit(1);
}

static void add(struct end *e, char *op, int id, uint32_t length, const char *lkey, const char *rkey, int offset, uint32_t imm)
{
	int unsignaled = op[strlen(op) - 1] == '-';
	op[strlen(op) - unsignaled] = 0;
	struct end *peer = &ends[e == ends];
	struct ibv_send_wr *wr = &wrs[count];
	lists[count] = at(e, length, lkey);
	uint64_t target = at(peer, 0, "all").addr + TARGET + offset;
	*wr = (struct ibv_send_wr){.wr_id = id, .sg_list = &lists[count], .num_sge = 1, .opcode = operation(op),
		.send_flags = unsignaled ? 0 : IBV_SEND_SIGNALED, .imm_data = htonl(imm)};
	switch (wr->opcode) {
	case IBV_WR_BIND_MW:
		wr->bind_mw = (typeof(wr->bind_mw)){.mw = e->mw, .rkey = ibv_inc_rkey(e->mw->rkey), .bind_info = {.mr = memory_of(lkey),
			.addr = at(e, 0, lkey).addr + TARGET, .length = length, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
		wr->num_sge = 0;
		break;
	case IBV_WR_LOCAL_INV:
		wr->invalidate_rkey = ibv_inc_rkey(e->mw->rkey);
		wr->num_sge = 0;
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		wr->wr.atomic.remote_addr = target;
		wr->wr.atomic.rkey = rkey_of(rkey);
		break;
	default:
		if (wr->opcode == IBV_WR_SEND_WITH_INV)
			wr->invalidate_rkey = rkey_of(rkey);
		if (e->qp->qp_type == IBV_QPT_UD) {
			wr->wr.ud = (typeof(wr->wr.ud)){.ah = ah, .remote_qpn = peer->qp->qp_num, .remote_qkey = QKEY};
		} else {
			wr->wr.rdma.remote_addr = target;
			wr->wr.rdma.rkey = rkey_of(rkey);
		}
	}
	if (count)
		wrs[count - 1].next = wr;
	count++;
	poster = e;
}

static void post(void)
{
	struct ibv_send_wr *bad;
	MUST(!ibv_post_send(poster->qp, wrs, &bad));
	count = 0;
}

static void report(void)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	struct ibv_wc wc;
	/* What the model does at once is done when it has answered. */
	for (struct end *e = ends; e < ends + 2; e++) {
		MUST(!ibv_query_qp(e->qp, &a, IBV_QP_STATE, &init));
		printf("state %c %d\n", 'A' + (int)(e - ends), a.qp_state);
	}
	for (int i = 0; i < 4; i++)
		while (ibv_poll_cq(ends[i / 2].cq[i % 2], 1, &wc))
			come(&wc, &ends[i / 2], i % 2);
	struct pollfd f = {.fd = dev->async_fd, .events = POLLIN};
	while (poll(&f, 1, 0) == 1) {
		struct ibv_async_event event;
		MUST(!ibv_get_async_event(dev, &event));
		printf("event %c %d\n", event.element.qp == ends[0].qp ? 'A' : event.element.qp == ends[1].qp ? 'B' : '?', event.event_type);
		ibv_ack_async_event(&event);
	}
}

static enum ibv_qp_type type_of(const char *name)
{
	return !strcmp(name, "RC") ? IBV_QPT_RC : !strcmp(name, "UC") ? IBV_QPT_UC : IBV_QPT_UD;
}

int main(void)
{
	char line[256], *w[9];
	begin_device();
	while (fgets(line, sizeof line, stdin)) {
		int n = 0;
		for (char *word = strtok(line, " \n"); word && n < 9; word = strtok(NULL, " \n"))
			w[n++] = word;
		if (!n)
			continue;
		struct end *e = &ends[n > 1 && *w[1] == 'B'];
		if (!strcmp(w[0], "case") && n == 3)
			begin_case(type_of(w[1]), atoi(w[2]));
		else if (!strcmp(w[0], "set") && n == 4)
			set(e, w[2], strtoul(w[3], NULL, 0));
		else if (!strcmp(w[0], "join") && n == 2)
			join(e);
		else if (!strcmp(w[0], "recv") && n == 5)
			receive(e, atoi(w[2]), strtoul(w[3], NULL, 0), w[4]);
		else if (!strcmp(w[0], "add") && n == 9)
			add(e, w[2], atoi(w[3]), strtoul(w[4], NULL, 0), w[5], w[6], atoi(w[7]), strtoul(w[8], NULL, 0));
		else if (!strcmp(w[0], "post") && n == 1)
			post();
		else if (!strcmp(w[0], "await") && n == 4)
			await(e, *w[2] == 'r' ? RECVS : SENDS, atoi(w[3]));
		else if (!strcmp(w[0], "move") && n == 3)
			move(e, w[2]);
		else if (!strcmp(w[0], "end") && n == 1) {
			report();
			end_case();
			printf("end\n");
		} else {
			fprintf(stderr, "no step %s of %d words\n", w[0], n);
			return 1;
		}
	}
	end_device();
	return 0;
}
