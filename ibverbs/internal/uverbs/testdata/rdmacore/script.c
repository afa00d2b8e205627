// The calls of TestSameFramesAsRDMACore, in C: script DEVICE PORT GID_INDEX MTU. The test makes the same calls with the same arguments.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// The provider of libibverbs for Soft-RoCE has no DMA-BUF, but the library exports to providers what sends the command.
int ibv_cmd_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, void *verbs_mr);

#define CHECK(what, ok) \
	do { \
		if (!(ok)) { \
			fprintf(stderr, "%s: %s\n", what, strerror(errno)); \
			return 1; \
		} \
	} while (0)

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	int port = atoi(argv[2]), gid_index = atoi(argv[3]), mtu = atoi(argv[4]), n;
	struct ibv_device **list = ibv_get_device_list(&n), *device = NULL;
	CHECK("list", list);
	for (int i = 0; i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), argv[1]))
			device = list[i];
	CHECK("device", device);
	struct ibv_context *c = ibv_open_device(device);
	CHECK("open", c);

	struct ibv_device_attr_ex dev_attr;
	CHECK("query device", !ibv_query_device_ex(c, NULL, &dev_attr));
	struct ibv_port_attr port_attr;
	CHECK("query port", !ibv_query_port(c, port, &port_attr));
	static struct ibv_gid_entry gids[4096];
	CHECK("query GID table", ibv_query_gid_table(c, gids, port_attr.gid_tbl_len * dev_attr.orig_attr.phys_port_cnt, 0) > 0);
	union ibv_gid gid = {};
	for (int i = 0; i < 4096; i++)
		if (gids[i].port_num == port && gids[i].gid_index == gid_index)
			gid = gids[i].gid;

	struct ibv_pd *pd = ibv_alloc_pd(c);
	CHECK("PD", pd);
	void *buf = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK("mmap", buf != MAP_FAILED);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING);
	CHECK("MR", mr);
	int fd = memfd_create("not a dma-buf", MFD_CLOEXEC);
	CHECK("memfd", fd >= 0);
	char verbs_mr[256] = {};
	CHECK("DMA-BUF was taken", ibv_cmd_reg_dmabuf_mr(pd, 0x1000, 0x2000, 0x7000, fd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, verbs_mr));

	struct ibv_comp_channel *channel = ibv_create_comp_channel(c);
	CHECK("channel", channel);
	struct ibv_cq *cq = ibv_create_cq(c, 16, NULL, channel, 0);
	CHECK("CQ", cq);
	CHECK("arm", !ibv_req_notify_cq(cq, 0));
	CHECK("arm for solicited", !ibv_req_notify_cq(cq, 1));
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 4, .max_recv_wr = 5, .max_send_sge = 2, .max_recv_sge = 3, .max_inline_data = 64}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK("QP", qp);

	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .pkey_index = 0, .port_num = port,
				.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
	CHECK("INIT", !ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	struct ibv_sge in = {.addr = (uintptr_t)buf, .length = 64, .lkey = mr->lkey};
	struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = &in, .num_sge = 1}, *bad_recv;
	CHECK("post receive", !ibv_post_recv(qp, &recv, &bad_recv));
	memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = mtu;
	a.dest_qp_num = qp->qp_num;
	a.rq_psn = 0xabcdef;
	a.max_dest_rd_atomic = 3;
	a.min_rnr_timer = 12;
	a.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = port, .sl = 1,
					 .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64, .flow_label = 0x12345, .traffic_class = 0x68}};
	CHECK("RTR", !ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = 6;
	a.rnr_retry = 5;
	a.sq_psn = 0xabcdef;
	a.max_rd_atomic = 4;
	CHECK("RTS", !ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	CHECK("query QP", !ibv_query_qp(qp, &a, 0x1fffff, &init));

	struct ibv_sge out = {.addr = (uintptr_t)buf + 64, .length = 64, .lkey = mr->lkey};
	struct ibv_send_wr send = {.wr_id = 2, .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_send;
	CHECK("post send", !ibv_post_send(qp, &send, &bad_send));
	for (int done = 0; done < 2;) {
		struct ibv_wc wc;
		int got = ibv_poll_cq(cq, 1, &wc);
		CHECK("poll", got >= 0 && !(got && wc.status));
		done += got;
	}

	CHECK("resize CQ", !ibv_resize_cq(cq, 40));
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 9, .max_sge = 2, .srq_limit = 3}};
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
	CHECK("SRQ", srq);
	struct ibv_srq_attr limit = {.srq_limit = 4}, size = {.max_wr = 20}, now;
	CHECK("limit of SRQ", !ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	CHECK("resize SRQ", !ibv_modify_srq(srq, &size, IBV_SRQ_MAX_WR));
	CHECK("query SRQ", !ibv_query_srq(srq, &now) && now.srq_limit == 4);
	struct ibv_qp_init_attr ud_init = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_UD, .cap = {.max_send_wr = 4, .max_send_sge = 1}};
	struct ibv_qp *ud = ibv_create_qp(pd, &ud_init);
	CHECK("UD QP", ud);
	memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_INIT;
	a.port_num = port;
	a.qkey = 0x11111111;
	CHECK("UD INIT", !ibv_modify_qp(ud, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_RTR;
	CHECK("UD RTR", !ibv_modify_qp(ud, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = 0x123;
	CHECK("UD RTS", !ibv_modify_qp(ud, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	struct ibv_ah_attr way = {.is_global = 1, .port_num = port, .sl = 2, .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 3,
				  .flow_label = 0x54321, .traffic_class = 0x20}};
	struct ibv_ah *ah = ibv_create_ah(pd, &way);
	CHECK("AH", ah);
	struct ibv_send_wr datagram = {.wr_id = 3, .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
				       .wr.ud = {.ah = ah, .remote_qpn = ud->qp_num, .remote_qkey = 0x11111111}};
	CHECK("post datagram", !ibv_post_send(ud, &datagram, &bad_send));
	union ibv_gid group = {.raw = {0xff, 0x0e, [15] = 0x77}};
	CHECK("attach", !ibv_attach_mcast(ud, &group, 0));
	CHECK("detach", !ibv_detach_mcast(ud, &group, 0));
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK("MW", mw);
	CHECK("dealloc MW", !ibv_dealloc_mw(mw));
	CHECK("destroy AH", !ibv_destroy_ah(ah));
	CHECK("destroy UD QP", !ibv_destroy_qp(ud));
	CHECK("destroy SRQ", !ibv_destroy_srq(srq));

	CHECK("destroy QP", !ibv_destroy_qp(qp));
	CHECK("destroy CQ", !ibv_destroy_cq(cq));
	CHECK("destroy channel", !ibv_destroy_comp_channel(channel));
	CHECK("dereg MR", !ibv_dereg_mr(mr));
	CHECK("dealloc PD", !ibv_dealloc_pd(pd));
	CHECK("close", !ibv_close_device(c));
	ibv_free_device_list(list);
	return 0;
}
