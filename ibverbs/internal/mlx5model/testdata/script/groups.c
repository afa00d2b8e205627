#include "script.h"

#define LID 0xc003
#define EVERYBODY 0xffffff

/* A message to a group, from who is in it. */
static void tell(const union ibv_gid *group, int ethernet)
{
	begin(&(struct props){.type = IBV_QPT_UD, .ethernet = ethernet});
	struct ibv_ah_attr a = {.dlid = LID, .port_num = 1, .is_global = 1,
		.grh = {.dgid = *group, .flow_label = 0x54321, .sgid_index = ethernet ? 2 : 0, .hop_limit = 3, .traffic_class = 7}};
	struct ibv_ah *to;
	MUST((to = ibv_create_ah(pd, &a)));
	MUST(!ibv_attach_mcast(qp, group, LID));
	struct ibv_sge two[2];
	struct ibv_send_wr wr = request(&(struct one){IBV_WR_SEND, IBV_SEND_SIGNALED}, two);
	wr.wr.ud.ah = to;
	wr.wr.ud.remote_qpn = EVERYBODY;
	receive(1, (int[]){1});
	post(&wr, 1);
	await(2);
	MUST(!ibv_detach_mcast(qp, group, LID));
	MUST(!ibv_destroy_ah(to));
	end();
}

void grouped(void)
{
	tell(&(union ibv_gid){.raw = {0xff, 0x12, 0x40, 0x1b, [12] = 0x81, [15] = 7}}, 0);
}

void heard(void)
{
	tell(&(union ibv_gid){.raw = {[10] = 0xff, 0xff, 239, 200, 1, 2}}, 1);
}
