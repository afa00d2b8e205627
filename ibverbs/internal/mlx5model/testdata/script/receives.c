#include "script.h"

static const struct one message = {IBV_WR_SEND, 0, 0, 0};

static void messages(int n)
{
	for (; n; n--) {
		struct ibv_sge two[2];
		struct ibv_send_wr wr = request(&message, two);
		wr.send_flags = IBV_SEND_SIGNALED;
		wr.num_sge = n % 3; /* none at times */
		post(&wr, 1);
		await(2);
	}
}

/* Lists of receives with fewer parts than there is room for, as many, and none. */
void receives(void)
{
	begin(&(struct props){.type = IBV_QPT_RC, .cap = {4, 5, 2, 3, 0}});
	for (int turn = 0; turn < 4; turn++) {
		receive(3, (int[]){1, 2, 3});
		messages(3);
		receive(2, (int[]){3, 1});
		messages(2);
	}
	/* A part without bytes is left out. */
	struct ibv_sge parts[3] = {at(2048, 128), at(3000, 0), at(4096, 128)};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = parts, .num_sge = 3}, *bad;
	MUST(!ibv_post_recv(qp, &wr, &bad));
	messages(1);
	end();
}

void shared(void)
{
	begin(&(struct props){.type = IBV_QPT_RC, .srq_wr = 5, .srq_sge = 2});
	struct ibv_srq_attr a;
	MUST(!ibv_query_srq(srq, &a));
	for (int turn = 0; turn < 5; turn++) {
		receive(3, (int[]){1, 2, 1});
		messages(2);
		receive(1, (int[]){2});
		messages(2);
	}
	a = (struct ibv_srq_attr){.srq_limit = 2};
	MUST(!ibv_modify_srq(srq, &a, IBV_SRQ_LIMIT));
	end();
}
