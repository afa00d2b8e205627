#include "script.h"

static void write_through(uint32_t rkey)
{
	struct ibv_sge two[2];
	struct ibv_send_wr wr = request(&(struct one){IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED}, two);
	wr.wr.rdma.rkey = rkey;
	post(&wr, 1);
	await(1);
}

static struct ibv_send_wr binding(struct ibv_mw *mw, uint32_t rkey, int access)
{
	return (struct ibv_send_wr){.wr_id = 3, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED, .bind_mw = {.mw = mw, .rkey = rkey,
		.bind_info = {.mr = mr, .addr = (uintptr_t)memory + 1024, .length = 512, .mw_access_flags = access}}};
}

/* A window of type 2 is bound, freed by its owner, bound anew with what follows in the same
 * list, and freed by the peer. */
void windows(void)
{
	begin(&(struct props){.type = IBV_QPT_RC, .access = 31});
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	MUST(mw);
	uint32_t key = ibv_inc_rkey(mw->rkey);
	struct ibv_send_wr wrs[2] = {binding(mw, key, IBV_ACCESS_REMOTE_WRITE)};
	post(wrs, 1);
	await(1);
	write_through(key);
	wrs[0] = (struct ibv_send_wr){.wr_id = 4, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = key};
	post(wrs, 1);
	await(1);
	key = ibv_inc_rkey(key);
	struct ibv_sge two[2];
	wrs[0] = binding(mw, key, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	wrs[1] = request(&(struct one){IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED}, two);
	wrs[1].wr.rdma.rkey = key;
	post(wrs, 2);
	await(2);
	write_through(key);
	receive(1, (int[]){1});
	wrs[0] = request(&(struct one){IBV_WR_SEND_WITH_INV, IBV_SEND_SIGNALED}, two);
	wrs[0].invalidate_rkey = key;
	post(wrs, 1);
	await(2);
	MUST(!ibv_dealloc_mw(mw));
	end();
}
