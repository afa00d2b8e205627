// The C side of the ring benchmarks: what a C program pays in user space to post to a Soft-RoCE queue and to poll one.
// It does the work that rdma-core's provider does per call (spin lock, list walk, checks, entry, acquire and release
// on the indices), reached by a function pointer as ibv_post_send and ibv_poll_cq are. The doorbell is left out, and a
// store of the index stands for the kernel, as on the Go side.
//
//	rings BENCHMARK MILLISECONDS    prints nanoseconds per call
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

enum { SLOTS = 128, SEND_STRIDE = 512, CQE_STRIDE = 128, MAX_SGE = 4, BATCH = 500 };
enum { WRITE = 0, WRITE_IMM = 1, SEND = 2, SEND_IMM = 3, READ = 4, CMP_SWP = 5, FETCH_ADD = 6 };
enum { SIGNALED = 2, INLINE = 8 };

// The shape of an RDMA program's own requests and completions.
struct sge { uint64_t addr; uint32_t length, lkey; };
struct request {
	uint64_t id;
	struct request *next;
	struct sge *sgl;
	int num_sge;
	uint32_t opcode, flags, imm;
	struct { uint64_t addr; uint32_t rkey; } remote;
	uint64_t compare_add, swap;
};
struct completion {
	uint64_t id;
	uint32_t status, opcode, vendor_err, byte_len, imm, qpn, src_qp, flags;
	uint16_t pkey_index, slid;
	uint8_t sl, path_bits;
};

struct ring {
	struct rxe_queue_buf *head;
	pthread_spinlock_t lock;
};
struct qp {
	struct ring sq;
	uint32_t ssn, max_sge, max_inline;
	int (*post)(struct qp *, struct request *, struct request **);
};
struct cq {
	struct ring q;
	int (*poll)(struct cq *, int, struct completion *);
};

static _Atomic uint32_t *producer(struct ring *r) { return (_Atomic uint32_t *)&r->head->producer_index; }
static _Atomic uint32_t *consumer(struct ring *r) { return (_Atomic uint32_t *)&r->head->consumer_index; }
static void *element(struct ring *r, uint32_t i) { return r->head->data + ((size_t)i << r->head->log2_elem_size); }

static int is_atomic(uint32_t op) { return op == CMP_SWP || op == FETCH_ADD; }

static int post_one(struct qp *qp, struct request *wr)
{
	struct ring *r = &qp->sq;
	uint32_t length = 0;
	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sgl[i].length;
	if (wr->num_sge > (int)qp->max_sge || (is_atomic(wr->opcode) && (length < 8 || wr->remote.addr & 7)) ||
	    ((wr->flags & INLINE) && length > qp->max_inline))
		return -1;

	uint32_t at = atomic_load_explicit(producer(r), memory_order_relaxed);
	struct rxe_send_wqe *w = element(r, at);
	memset(&w->wr, 0, sizeof(w->wr));
	w->wr.wr_id = wr->id;
	w->wr.opcode = wr->opcode;
	w->wr.send_flags = wr->flags;
	w->wr.ex.imm_data = wr->imm;
	switch (wr->opcode) {
	case WRITE: case WRITE_IMM: case READ:
		w->wr.wr.rdma.remote_addr = wr->remote.addr;
		w->wr.wr.rdma.rkey = wr->remote.rkey;
		break;
	case CMP_SWP: case FETCH_ADD:
		w->wr.wr.atomic.remote_addr = wr->remote.addr;
		w->wr.wr.atomic.compare_add = wr->compare_add;
		w->wr.wr.atomic.swap = wr->swap;
		w->wr.wr.atomic.rkey = wr->remote.rkey;
		break;
	}
	if (wr->flags & INLINE) {
		uint8_t *to = w->dma.inline_data;
		for (int i = 0; i < wr->num_sge; i++) {
			memcpy(to, (void *)(uintptr_t)wr->sgl[i].addr, wr->sgl[i].length);
			to += wr->sgl[i].length;
		}
	} else {
		memcpy(w->dma.sge, wr->sgl, wr->num_sge * sizeof(*wr->sgl));
	}
	w->iova = wr->remote.addr;
	w->dma.length = w->dma.resid = length;
	w->dma.num_sge = wr->num_sge;
	w->dma.cur_sge = w->dma.sge_offset = 0;
	w->state = 0;
	w->ssn = qp->ssn++;

	uint32_t next = (at + 1) & r->head->index_mask;
	if (atomic_load_explicit(consumer(r), memory_order_acquire) == next)
		return -1;
	atomic_store_explicit(producer(r), next, memory_order_release);
	return 0;
}

static __attribute__((noinline)) int post(struct qp *qp, struct request *wr, struct request **bad)
{
	int rc = 0;
	*bad = NULL;
	pthread_spin_lock(&qp->sq.lock);
	for (; wr; wr = wr->next) {
		if ((rc = post_one(qp, wr))) {
			*bad = wr;
			break;
		}
	}
	pthread_spin_unlock(&qp->sq.lock);
	return rc;
}

static __attribute__((noinline)) int poll(struct cq *cq, int n, struct completion *c)
{
	struct ring *r = &cq->q;
	int got;
	pthread_spin_lock(&r->lock);
	for (got = 0; got < n; got++, c++) {
		uint32_t at = atomic_load_explicit(consumer(r), memory_order_relaxed);
		if (atomic_load_explicit(producer(r), memory_order_acquire) == at)
			break;
		memcpy(c, element(r, at), sizeof(*c));
		atomic_store_explicit(consumer(r), (at + 1) & r->head->index_mask, memory_order_release);
	}
	pthread_spin_unlock(&r->lock);
	return got;
}

static void make_ring(struct ring *r, int stride)
{
	size_t size = sizeof(*r->head) + (size_t)SLOTS * stride;
	r->head = aligned_alloc(4096, (size + 4095) & ~(size_t)4095);
	if (!r->head)
		exit(1);
	memset(r->head, 0, size);
	r->head->log2_elem_size = __builtin_ctz(stride);
	r->head->index_mask = SLOTS - 1;
	pthread_spin_init(&r->lock, PTHREAD_PROCESS_PRIVATE);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

// What is measured lives in globals, so that the compiler cannot see through the calls.
struct qp qp;
struct cq cq;
struct request requests[16];
struct completion completions[16];

static void post_list(int n)
{
	struct request *bad;
	requests[n - 1].next = NULL;
	if (qp.post(&qp, requests, &bad))
		exit(1);
	atomic_store_explicit(consumer(&qp.sq), qp.sq.head->producer_index, memory_order_relaxed);
}

static void post_write(void) { post_list(1); }
static void post_list16(void) { post_list(16); }

static void poll_n(int n)
{
	uint32_t at = cq.q.head->consumer_index;
	atomic_store_explicit(producer(&cq.q), (at + n) & (SLOTS - 1), memory_order_relaxed);
	if (cq.poll(&cq, 16, completions) != n)
		exit(1);
}

static void poll_one(void) { poll_n(1); }
static void poll_none(void) { poll_n(0); }
static void poll16(void) { poll_n(16); }

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*run)(void); } all[] = {
		{ "PostWrite", post_write }, { "PostList16", post_list16 }, { "PollNone", poll_none }, { "PollOne", poll_one },
		{ "Poll16", poll16 } };
	static struct sge sge = { 0x1000, 4096, 7 };
	if (argc != 3)
		return 2;
	make_ring(&qp.sq, SEND_STRIDE);
	make_ring(&cq.q, CQE_STRIDE);
	qp.max_sge = MAX_SGE;
	qp.max_inline = MAX_SGE * sizeof(struct sge);
	qp.post = post;
	cq.poll = poll;
	for (int i = 0; i < 16; i++)
		requests[i] = (struct request){ .id = i, .next = &requests[i + 1], .sgl = &sge, .num_sge = 1, .opcode = WRITE,
			.flags = SIGNALED, .remote = { 0x2000, 9 } };
	for (size_t b = 0; b < sizeof(all) / sizeof(*all); b++) {
		if (strcmp(all[b].name, argv[1]))
			continue;
		// The median of batches, as on the Go side: preemption falls into few of them.
		size_t most = 1 << 20, n = 0;
		double *took = malloc(most * sizeof(*took)), end = now() + atof(argv[2]) * 1e6, start, t;
		if (!took)
			return 1;
		do {
			start = now();
			for (int i = 0; i < BATCH; i++)
				all[b].run();
			t = now();
			took[n++] = (t - start) / BATCH;
		} while (t < end && n < most);
		qsort(took, n, sizeof(*took), ascending);
		printf("%.3f\n", took[n / 2]);
		return 0;
	}
	return 2;
}
