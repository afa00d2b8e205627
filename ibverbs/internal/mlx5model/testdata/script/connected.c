#include "script.h"

#define EACH(...) do { const struct one list[] = {__VA_ARGS__}; each(list, sizeof list / sizeof *list); } while (0)

void connected(void)
{
	begin(&(struct props){.type = IBV_QPT_RC});
	EACH({IBV_WR_SEND, 0, 0, 1}, {IBV_WR_SEND_WITH_IMM, IBV_SEND_SOLICITED, 0, 1}, {IBV_WR_SEND, IBV_SEND_INLINE, 8, 1}, {IBV_WR_RDMA_WRITE},
		{IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, 8}, {IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 1}, {IBV_WR_RDMA_READ}, {IBV_WR_ATOMIC_FETCH_AND_ADD},
		{IBV_WR_ATOMIC_CMP_AND_SWP}, {IBV_WR_SEND, IBV_SEND_FENCE, 0, 1});
	/* Lists: the last alone is signaled. */
	for (int n = 2; n <= 4; n++) {
		struct ibv_sge two[4][2];
		struct ibv_send_wr wrs[4];
		for (int i = 0; i < n; i++)
			wrs[i] = request(&(struct one){IBV_WR_RDMA_WRITE, (i == n - 1 ? IBV_SEND_SIGNALED : 0) | (i == 1 ? IBV_SEND_INLINE : 0), 20}, two[i]);
		post(wrs, n);
		await(1);
	}
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	MUST(!ibv_query_qp(qp, &a, IBV_QP_STATE, &init));
	end();
}

void routed(void)
{
	begin(&(struct props){.type = IBV_QPT_RC, .ethernet = 1});
	EACH({IBV_WR_SEND, 0, 0, 1}, {IBV_WR_RDMA_WRITE});
	end();
}

/* All options of connection establishment that there are. */
void agreed(void)
{
	begin(&(struct props){.type = IBV_QPT_RC, .options = 1});
	EACH({IBV_WR_RDMA_WRITE});
	end();
}

void unreliable(void)
{
	begin(&(struct props){.type = IBV_QPT_UC});
	EACH({IBV_WR_SEND, 0, 0, 1}, {IBV_WR_SEND_WITH_IMM, IBV_SEND_SOLICITED, 0, 1}, {IBV_WR_SEND, IBV_SEND_INLINE, 8, 1}, {IBV_WR_RDMA_WRITE},
		{IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, 8}, {IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 1});
	end();
}

/* Datagrams to both addresses, one by one and as a list. */
static void both(int ethernet)
{
	begin(&(struct props){.type = IBV_QPT_UD, .ethernet = ethernet});
	EACH({IBV_WR_SEND, 0, 0, 1}, {IBV_WR_SEND_WITH_IMM, IBV_SEND_SOLICITED, 0, 1}, {IBV_WR_SEND, IBV_SEND_INLINE, 8, 1}, {IBV_WR_SEND, IBV_SEND_INLINE, 30, 1});
	struct ibv_sge two[2][2];
	struct ibv_send_wr wrs[2];
	for (int i = 0; i < 2; i++) {
		wrs[i] = request(&(struct one){IBV_WR_SEND, IBV_SEND_SIGNALED}, two[i]);
		wrs[i].wr.ud.ah = ah[i];
	}
	receive(2, (int[]){2, 1});
	post(wrs, 2);
	await(4);
	end();
}

void datagrams(void) { both(0); }
void addresses(void) { both(1); }

/* Lengths around the ends of units, blocks, the register and the queue. */
void inlined(void)
{
	static const uint32_t lengths[] = {0, 1, 12, 13, 28, 29, 44, 92, 93, 219, 220, 221, 284, 300};
	begin(&(struct props){.type = IBV_QPT_RC, .cap = {4, 1, 2, 1, 300}});
	for (int i = 0; i < 600; i++)
		memory[i] = i;
	for (int turn = 0; turn < 2; turn++)
		for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
			EACH({IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, lengths[i]});
	/* One after the other of a list that is copied. */
	struct ibv_sge two[2];
	struct ibv_send_wr wr = request(&(struct one){IBV_WR_RDMA_WRITE, IBV_SEND_INLINE | IBV_SEND_SIGNALED, 24}, two);
	wr.num_sge = 2;
	post(&wr, 1);
	await(1);
	end();
}

/* Lists without data, and of as many parts as there is room for. */
void gathered(void)
{
	begin(&(struct props){.type = IBV_QPT_RC, .cap = {2, 1, 14, 1, 0}});
	for (int turn = 0; turn < 3; turn++)
		for (int n = 0; n <= 14; n += 7) {
			struct ibv_sge list[14];
			struct ibv_send_wr wr = request(&(struct one){IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED}, list);
			for (int i = 0; i < n; i++)
				list[i] = at(16 * i, i == 3 ? 0 : 8);
			wr.num_sge = n;
			post(&wr, 1);
			await(1);
		}
	end();
}
