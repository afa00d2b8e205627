#include "script.h"

static void message(int flags)
{
	struct ibv_sge two[2];
	struct ibv_send_wr wr = request(&(struct one){IBV_WR_SEND, IBV_SEND_SIGNALED | flags}, two);
	receive(1, (int[]){1});
	post(&wr, 1);
}

static void event(void)
{
	struct ibv_cq *of;
	void *context;
	MUST(!ibv_get_cq_event(channel, &of, &context));
	ibv_ack_cq_events(of, 1);
}

/* Arms, of each kind, behind and before completions. The number of an arm grows with events. */
void events(void)
{
	begin(&(struct props){.type = IBV_QPT_RC});
	for (int i = 0; i < 6; i++) {
		MUST(!ibv_req_notify_cq(cq, 0));
		message(0);
		event();
		await(2);
		MUST(!ibv_req_notify_cq(cq, 1));
		message(0);
		await(2);
		message(IBV_SEND_SOLICITED);
		event();
		await(2);
	}
	MUST(!ibv_req_notify_cq(cq, 1));
	MUST(!ibv_req_notify_cq(cq, 0));
	end();
}

/* Completions of 128 bytes, in a queue that turns. */
void large(void)
{
	begin(&(struct props){.type = IBV_QPT_RC, .depth = 3});
	for (int i = 0; i < 5; i++) {
		MUST(!ibv_req_notify_cq(cq, i & 1));
		message(IBV_SEND_SOLICITED);
		event();
		await(2);
	}
	end();
}

/* Other rings, larger and smaller ones, while completions are in them. */
void resized(void)
{
	static const int depths[] = {31, 100, 15, 7, 7, 63};
	begin(&(struct props){.type = IBV_QPT_RC, .depth = 7});
	for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
		message(0);
		message(0);
		await(1);
		MUST(!ibv_resize_cq(cq, depths[i]));
		await(3);
		MUST(!ibv_req_notify_cq(cq, 0));
		message(0);
		event();
		await(2);
	}
	end();
}
