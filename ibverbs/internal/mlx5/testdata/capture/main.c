// What libmlx5 of rdma-core makes of requests and of completions, one per line: a name
// and bytes in hexadecimal. The program is its own kernel: it answers the calls that
// libibverbs and libmlx5 make to open a ConnectX adapter and to make objects, with an
// adapter that does nothing. SYSFS_PATH names the files of the device.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define QPN 0xabc
#define KEY 0x1100 // of an MR; a window has the next
#define die(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))

// The kernel.

static int device = -1; // memory whose pages are the doorbells
static uint32_t handles = 1, pages = 1, windows = 1;

static int is_device(const char *path) { return path && !strcmp(path, "/dev/infiniband/uverbs0"); }

int open(const char *path, int flags, ...)
{
	va_list a;
	va_start(a, flags);
	int mode = va_arg(a, int);
	va_end(a);
	if (!is_device(path)) {
		static int (*next)(const char *, int, ...);
		if (!next)
			next = dlsym(RTLD_NEXT, "open");
		return next(path, flags, mode);
	}
	device = memfd_create("uverbs0", 0);
	if (ftruncate(device, 1 << 20))
		return -1;
	return device;
}

static int character_device(struct stat *s)
{
	memset(s, 0, sizeof *s);
	s->st_mode = S_IFCHR | 0600;
	s->st_rdev = makedev(231, 192);
	return 0;
}

int stat(const char *path, struct stat *s)
{
	static int (*next)(const char *, struct stat *);
	if (is_device(path))
		return character_device(s);
	if (!next)
		next = dlsym(RTLD_NEXT, "stat");
	return next(path, s);
}

int fstat(int fd, struct stat *s)
{
	static int (*next)(int, struct stat *);
	if (fd >= 0 && fd == device)
		return character_device(s);
	if (!next)
		next = dlsym(RTLD_NEXT, "fstat");
	return next(fd, s);
}

// The machine's own devices are asked for by RDMA netlink.
int socket(int domain, int type, int protocol)
{
	static int (*next)(int, int, int);
	if (domain == AF_NETLINK) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	if (!next)
		next = dlsym(RTLD_NEXT, "socket");
	return next(domain, type, protocol);
}

static struct ib_uverbs_attr *attr(struct ib_uverbs_ioctl_hdr *h, int id)
{
	for (int i = 0; i < h->num_attrs; i++)
		if (h->attrs[i].attr_id == id)
			return &h->attrs[i];
	return NULL;
}

static void *in(struct ib_uverbs_attr *a) { return a->len <= 8 ? (void *)&a->data : (void *)(uintptr_t)a->data; }

// out answers with n bytes, as many of them as there is room for.
static void out(struct ib_uverbs_ioctl_hdr *h, int id, const void *v, size_t n)
{
	struct ib_uverbs_attr *a = attr(h, id);
	if (!a)
		return;
	memset((void *)(uintptr_t)a->data, 0, a->len);
	memcpy((void *)(uintptr_t)a->data, v, n < a->len ? n : a->len);
	a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
}

static void echo(struct ib_uverbs_ioctl_hdr *h, int to, int from)
{
	out(h, to, in(attr(h, from)), attr(h, from)->len);
}

static void made(struct ib_uverbs_ioctl_hdr *h, int id) { attr(h, id)->data = handles++; }

static int command(struct ib_uverbs_ioctl_hdr *h, uint32_t cmd)
{
	uint32_t handle = handles;
	switch (cmd) {
	case IB_USER_VERBS_CMD_QUERY_DEVICE | 0x80000000: {
		struct ib_uverbs_ex_query_device_resp r = { .response_length = sizeof r };
		r.base.max_qp = r.base.max_qp_wr = r.base.max_cqe = r.base.max_sge = 1 << 10;
		r.base.phys_port_cnt = 2;
		r.base.atomic_cap = IBV_ATOMIC_HCA;
		out(h, UVERBS_ATTR_CORE_OUT, &r, sizeof r);
		return 0;
	}
	case IB_USER_VERBS_CMD_ALLOC_PD: {
		struct mlx5_ib_alloc_pd_resp r = { .pdn = 9 };
		out(h, UVERBS_ATTR_UHW_OUT, &r, sizeof r);
		break;
	}
	case IB_USER_VERBS_CMD_REG_MR: {
		struct ib_uverbs_reg_mr_resp r = { .mr_handle = handles++, .lkey = KEY, .rkey = KEY };
		out(h, UVERBS_ATTR_CORE_OUT, &r, sizeof r);
		return 0;
	}
	case IB_USER_VERBS_CMD_ALLOC_MW: {
		struct ib_uverbs_alloc_mw_resp r = { .mw_handle = handles++, .rkey = KEY + 0x100 * windows++ };
		out(h, UVERBS_ATTR_CORE_OUT, &r, sizeof r);
		return 0;
	}
	case IB_USER_VERBS_CMD_CREATE_AH: {
		struct mlx5_ib_create_ah_resp r = { .response_length = 10, .dmac = { 2, 4, 6, 8, 10, 12 } };
		out(h, UVERBS_ATTR_UHW_OUT, &r, sizeof r);
		break;
	}
	case IB_USER_VERBS_CMD_MODIFY_QP:
		return 0;
	default:
		errno = EPROTONOSUPPORT;
		return -1;
	}
	handles++;
	out(h, UVERBS_ATTR_CORE_OUT, &handle, sizeof handle);
	return 0;
}

static int method(struct ib_uverbs_ioctl_hdr *h)
{
	switch (h->object_id << 16 | h->method_id) {
	case UVERBS_OBJECT_DEVICE << 16 | UVERBS_METHOD_INVOKE_WRITE:
		if (h->num_attrs == 1) { // whether the ioctl is there
			errno = ENOSPC;
			return -1;
		}
		return command(h, *(uint32_t *)in(attr(h, UVERBS_ATTR_WRITE_CMD)));
	case UVERBS_OBJECT_DEVICE << 16 | UVERBS_METHOD_GET_CONTEXT: {
		uint32_t vectors = 1;
		uint64_t support = 0;
		struct mlx5_ib_alloc_ucontext_resp r = { .bf_reg_size = 512, .cache_line_size = 64, .max_sq_desc_sz = 1024,
			.max_rq_desc_sz = 512, .max_send_wqebb = 1 << 15, .max_recv_wr = 1 << 15, .max_srq_recv_wr = 1 << 15, .num_ports = 2,
			.response_length = sizeof r, .cqe_version = 1, .cmds_supp_uhw = 3, .log_uar_size = 12, .num_uars_per_page = 1 };
		out(h, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &vectors, sizeof vectors);
		out(h, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, &support, sizeof support);
		out(h, UVERBS_ATTR_UHW_OUT, &r, sizeof r);
		return 0;
	}
	case UVERBS_OBJECT_DEVICE << 16 | UVERBS_METHOD_QUERY_PORT: {
		struct ib_uverbs_query_port_resp_ex r = { .legacy_resp = { .gid_tbl_len = 16, .pkey_tbl_len = 4, .state = 4, .max_mtu = 5,
			.active_mtu = 4, .link_layer = *(uint8_t *)in(attr(h, UVERBS_ATTR_QUERY_PORT_PORT_NUM)) } };
		out(h, UVERBS_ATTR_QUERY_PORT_RESP, &r, sizeof r);
		return 0;
	}
	case UVERBS_OBJECT_DEVICE << 16 | UVERBS_METHOD_QUERY_GID_ENTRY: { // 3 is of RoCE v2, the others of v1
		struct ib_uverbs_gid_entry r = { .port_num = 2, .gid_index = *(uint32_t *)in(attr(h, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX)) };
		r.gid_type = r.gid_index == 3 ? 2 : 1;
		out(h, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &r, sizeof r);
		return 0;
	}
	case UVERBS_OBJECT_ASYNC_EVENT << 16:
		attr(h, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)->data = memfd_create("events", 0);
		return 0;
	case MLX5_IB_OBJECT_UAR << 16 | MLX5_IB_METHOD_UAR_OBJ_ALLOC: {
		uint32_t page = pages++, length = 4096;
		uint64_t offset = (uint64_t)page << 12;
		out(h, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &page, sizeof page);
		out(h, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &length, sizeof length);
		out(h, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset, sizeof offset);
		made(h, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
		return 0;
	}
	case UVERBS_OBJECT_CQ << 16: {
		struct mlx5_ib_create_cq_resp r = { .cqn = 0x77 };
		out(h, UVERBS_ATTR_UHW_OUT, &r, sizeof r);
		echo(h, UVERBS_ATTR_CREATE_CQ_RESP_CQE, UVERBS_ATTR_CREATE_CQ_CQE);
		made(h, UVERBS_ATTR_CREATE_CQ_HANDLE);
		return 0;
	}
	case UVERBS_OBJECT_QP << 16: {
		struct mlx5_ib_create_qp_resp r = { 0 };
		uint32_t qpn = QPN;
		out(h, UVERBS_ATTR_UHW_OUT, &r, sizeof r);
		echo(h, UVERBS_ATTR_CREATE_QP_RESP_CAP, UVERBS_ATTR_CREATE_QP_CAP);
		out(h, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &qpn, sizeof qpn);
		made(h, UVERBS_ATTR_CREATE_QP_HANDLE);
		return 0;
	}
	case UVERBS_OBJECT_QP << 16 | UVERBS_METHOD_QP_DESTROY: {
		struct ib_uverbs_destroy_qp_resp r = { 0 };
		out(h, UVERBS_ATTR_DESTROY_QP_RESP, &r, sizeof r);
		return 0;
	}
	case UVERBS_OBJECT_SRQ << 16: {
		struct mlx5_ib_create_srq_resp r = { .srqn = 0x55 };
		out(h, UVERBS_ATTR_UHW_OUT, &r, sizeof r);
		echo(h, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, UVERBS_ATTR_CREATE_SRQ_MAX_WR);
		echo(h, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, UVERBS_ATTR_CREATE_SRQ_MAX_SGE);
		made(h, UVERBS_ATTR_CREATE_SRQ_HANDLE);
		return 0;
	}
	}
	errno = EPROTONOSUPPORT;
	return -1;
}

int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int, unsigned long, void *);
	va_list a;
	va_start(a, request);
	void *arg = va_arg(a, void *);
	va_end(a);
	if (fd >= 0 && fd == device && request == RDMA_VERBS_IOCTL)
		return method(arg);
	if (!next)
		next = dlsym(RTLD_NEXT, "ioctl");
	return next(fd, request, arg);
}

// The program.

static void show(const char *name, const void *p, size_t n)
{
	printf("%s ", name);
	for (size_t i = 0; i < n; i++)
		printf("%02x", ((const uint8_t *)p)[i]);
	putchar('\n');
}

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_srq *srq;

// queue is a QP in RTS with its CQ. There is one at a time, so that its user index, by
// which completions name it, is the lowest.
struct queue {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct mlx5dv_cq dvcq;
	struct mlx5dv_qp dv;
	uint32_t posted; // basic blocks
	uint32_t completed;
};

static struct queue make(enum ibv_qp_type type, struct ibv_srq *s)
{
	struct queue q = { 0 };
	q.cq = ibv_create_cq(ctx, 7, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = q.cq, .recv_cq = q.cq, .srq = s, .qp_type = type,
		.cap = { .max_send_wr = 8, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64 } };
	q.qp = q.cq ? ibv_create_qp(pd, &init) : NULL;
	if (!q.qp)
		die("no queue pair: %m");
	for (int s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++) {
		struct ibv_qp_attr a = { .qp_state = s };
		if ((errno = ibv_modify_qp(q.qp, &a, IBV_QP_STATE)))
			die("modify: %m");
	}
	struct mlx5dv_obj o = { .qp = { q.qp, &q.dv }, .cq = { q.cq, &q.dvcq } };
	if (mlx5dv_init_obj(&o, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ))
		die("mlx5dv_init_obj: %m");
	return q;
}

static void gone(struct queue *q)
{
	if ((errno = ibv_destroy_qp(q->qp)))
		die("destroy: %m");
}

// post shows the entry that a request becomes, by the length that it says itself.
static void post(struct queue *q, const char *name, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;
	uint8_t *e = (uint8_t *)q->dv.sq.buf + (q->posted & (q->dv.sq.wqe_cnt - 1)) * 64;
	wr.wr_id = 1;
	if ((errno = ibv_post_send(q->qp, &wr, &bad)))
		die("%s: %m", name);
	int ds = e[7] & 0x3f;
	show(name, e, ds * 16);
	q->posted += (ds + 3) / 4;
	uint32_t record = be32toh(q->dv.dbrec[1]);
	if (record != q->posted)
		die("%s: the record says %u, not %u", name, record, q->posted);
	// A completion frees the entry.
	struct mlx5_cqe64 *c = (struct mlx5_cqe64 *)q->dvcq.buf + (q->completed & (q->dvcq.cqe_cnt - 1));
	struct ibv_wc wc;
	memset(c, 0, sizeof *c);
	c->sop_drop_qpn = htobe32(e[3] << 24 | QPN);
	c->wqe_counter = htobe16(q->posted - (ds + 3) / 4);
	c->op_own = MLX5_CQE_REQ << 4 | !!(q->completed & q->dvcq.cqe_cnt);
	q->completed++;
	ibv_poll_cq(q->cq, 1, &wc);
}

static struct ibv_sge one[2] = { { 0x1122334455667788, 0x100, 0xabcd }, { 0x99, 1, 2 } }, eight = { 2, 8, 3 };

static void reliable(void)
{
	struct queue q = make(IBV_QPT_RC, NULL);
	static char hello[] = "hello, here are more than thirty-two bytes of data";
	struct ibv_sge text = { (uintptr_t)hello, 5, 0 }, longer = { (uintptr_t)hello, 50, 0 };
	struct ibv_send_wr wr = { .sg_list = one, .num_sge = 1, .wr.rdma = { 0x8877665544332211, 0x1234 } };
#define POST(name, ...) do { struct ibv_send_wr w = wr; __VA_ARGS__; post(&q, name, w); } while (0)
	POST("send", w.opcode = IBV_WR_SEND);
	POST("send-signaled", w.opcode = IBV_WR_SEND, w.send_flags = IBV_SEND_SIGNALED, w.num_sge = 0);
	POST("send-solicited-fenced", w.opcode = IBV_WR_SEND, w.send_flags = IBV_SEND_SOLICITED | IBV_SEND_FENCE, w.num_sge = 2);
	POST("send-imm", w.opcode = IBV_WR_SEND_WITH_IMM, w.imm_data = htobe32(0xdeadbeef));
	POST("send-inv", w.opcode = IBV_WR_SEND_WITH_INV, w.invalidate_rkey = 0x4321);
	POST("write", w.opcode = IBV_WR_RDMA_WRITE);
	POST("write-imm", w.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, w.imm_data = htobe32(7));
	POST("read", w.opcode = IBV_WR_RDMA_READ, w.num_sge = 2);
	POST("cmp-swap", w.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, w.sg_list = &eight, w.wr.atomic.remote_addr = 0x8877665544332210,
		w.wr.atomic.rkey = 0x1234, w.wr.atomic.compare_add = 0xc0, w.wr.atomic.swap = 0x5a);
	POST("fetch-add", w.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, w.sg_list = &eight, w.wr.atomic.remote_addr = 0x8877665544332210,
		w.wr.atomic.rkey = 0x1234, w.wr.atomic.compare_add = 0xadd, w.wr.atomic.swap = 0);
	POST("write-inline", w.opcode = IBV_WR_RDMA_WRITE, w.sg_list = &text, w.send_flags = IBV_SEND_INLINE);
	POST("send-inline-50", w.opcode = IBV_WR_SEND, w.sg_list = &longer, w.send_flags = IBV_SEND_INLINE);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	if (!mw)
		die("no window: %m");
	memset(q.dv.sq.buf, 0, q.dv.sq.wqe_cnt * 64); // what is reserved stays as it was
	POST("bind-mw", w.opcode = IBV_WR_BIND_MW, w.num_sge = 0, w.bind_mw.mw = mw, w.bind_mw.rkey = mw->rkey | 0x77,
		w.bind_mw.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)mr->addr, 4096,
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC });
	POST("send-after-bind", w.opcode = IBV_WR_SEND);
	memset(q.dv.sq.buf, 0, q.dv.sq.wqe_cnt * 64);
	POST("local-inv", w.opcode = IBV_WR_LOCAL_INV, w.num_sge = 0, w.invalidate_rkey = mw->rkey | 0x77);
	POST("send-fenced-after-inv", w.opcode = IBV_WR_SEND, w.send_flags = IBV_SEND_FENCE);

	struct ibv_recv_wr *bad, r = { .sg_list = one, .num_sge = 2 }, first = { .next = &r, .sg_list = one, .num_sge = 1 };
	if ((errno = ibv_post_recv(q.qp, &first, &bad)))
		die("receive: %m");
	show("receives", q.dv.rq.buf, 2 * q.dv.rq.stride);
	gone(&q);
}

static void datagrams(void)
{
	struct queue q = make(IBV_QPT_UD, NULL);
	for (int i = 0; i < 4; i++) {
		static const char *names[] = { "ud-infiniband", "ud-infiniband-local", "ud-roce-v1", "ud-roce-v2" };
		struct ibv_ah_attr a = { .grh = { .flow_label = 0x12345, .sgid_index = i == 2 ? 4 : 3, .hop_limit = 0x40, .traffic_class = 0x11 },
			.dlid = 0x4321, .sl = 5, .src_path_bits = 6, .static_rate = IBV_RATE_10_GBPS, .is_global = i != 1, .port_num = i < 2 ? 1 : 2 };
		a.grh.dgid.raw[0] = 0xfe, a.grh.dgid.raw[1] = 0x80, a.grh.dgid.raw[15] = 9;
		struct ibv_ah *ah = ibv_create_ah(pd, &a);
		if (!ah)
			die("%s: %m", names[i]);
		post(&q, names[i], (struct ibv_send_wr){ .opcode = i % 2 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, .imm_data = htobe32(i), .sg_list = one,
			.num_sge = 1, .wr.ud = { ah, 0xabcde, 0x11223344 } });
	}
	gone(&q);
}

static void shared(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 3, .max_sge = 2 } };
	struct mlx5dv_srq dv = { 0 };
	struct mlx5dv_obj o = { .srq = { NULL, &dv } };
	o.srq.in = srq = ibv_create_srq(pd, &init);
	if (!srq || mlx5dv_init_obj(&o, MLX5DV_OBJ_SRQ))
		die("no SRQ: %m");
	struct ibv_recv_wr *bad, r = { .sg_list = one, .num_sge = 2 }, first = { .next = &r, .sg_list = one, .num_sge = 1 };
	if ((errno = ibv_post_srq_recv(srq, &first, &bad)))
		die("receive: %m");
	show("shared-receives", dv.buf, 2 * dv.stride);
}

// completions shows what a poll makes of one that the adapter would write: the fields of
// ibv_wc as text.
static void completions(void)
{
	static const struct { const char *name; uint8_t opcode, of; } kinds[] = {
		{ "send", MLX5_CQE_REQ, MLX5_OPCODE_SEND }, { "send-inv", MLX5_CQE_REQ, MLX5_OPCODE_SEND_INVAL }, { "write", MLX5_CQE_REQ, MLX5_OPCODE_RDMA_WRITE },
		{ "read", MLX5_CQE_REQ, MLX5_OPCODE_RDMA_READ }, { "cmp-swap", MLX5_CQE_REQ, MLX5_OPCODE_ATOMIC_CS },
		{ "fetch-add", MLX5_CQE_REQ, MLX5_OPCODE_ATOMIC_FA }, { "receive", MLX5_CQE_RESP_SEND }, { "receive-imm", MLX5_CQE_RESP_SEND_IMM },
		{ "receive-inv", MLX5_CQE_RESP_SEND_INV }, { "receive-write-imm", MLX5_CQE_RESP_WR_IMM },
	};
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds + 64; i++) {
		struct queue q = make(IBV_QPT_UD, NULL);
		struct ibv_recv_wr *badr, r = { .wr_id = 2 };
		if ((errno = ibv_post_recv(q.qp, &r, &badr)))
			die("receive: %m");
		struct mlx5_cqe64 *c = q.dvcq.buf;
		int failed = i >= sizeof kinds / sizeof *kinds, syndrome = i - sizeof kinds / sizeof *kinds;
		memset(c, 0, sizeof *c);
		c->flags_rqpn = htobe32(2 << 28 | 5 << 24 | 0xbadbad);
		c->slid = htobe16(0x77), c->ml_path = 0x89, c->byte_cnt = htobe32(77), c->imm_inval_pkey = htobe32(0xdeadbeef);
		c->sop_drop_qpn = htobe32((failed ? 0 : kinds[i].of << 24) | QPN);
		c->op_own = (failed ? MLX5_CQE_REQ_ERR : kinds[i].opcode) << 4;
		if (failed) {
			((struct mlx5_err_cqe *)c)->vendor_err_synd = 0x42;
			((struct mlx5_err_cqe *)c)->syndrome = syndrome;
		}
		struct ibv_wc wc = { 0 };
		if (ibv_poll_cq(q.cq, 1, &wc) != 1)
			die("no completion");
		if (failed)
			printf("syndrome-%02x %d\n", syndrome, wc.status);
		else
			printf("completion-%s op=%d status=%d len=%u imm=%08x flags=%d src=%x sl=%d slid=%x path=%d\n", kinds[i].name,
				wc.opcode, wc.status, wc.byte_len, wc.wc_flags & IBV_WC_WITH_IMM ? be32toh(wc.imm_data) :
				wc.wc_flags & IBV_WC_WITH_INV ? wc.invalidated_rkey : 0, wc.wc_flags, wc.src_qp, wc.sl, wc.slid, wc.dlid_path_bits);
		gone(&q);
	}
}

int main(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	if (!list || n != 1)
		die("%d devices: %m", n);
	if (!(ctx = ibv_open_device(list[0])) || !(pd = ibv_alloc_pd(ctx)))
		die("open: %m");
	// The memory is at an address that the other side can have, too.
	void *mem = mmap((void *)0x700000000000, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (mem == MAP_FAILED || !(mr = ibv_reg_mr(pd, mem, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)))
		die("register: %m");
	reliable();
	datagrams();
	shared();
	completions();
	return 0;
}
