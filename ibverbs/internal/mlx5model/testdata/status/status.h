/* What a script of statuses works on: two ends, A and B, of one context. */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, strerror(errno)); exit(1); } } while (0)

enum { SENDS, RECVS };
enum { ROOM = 1 << 14, TARGET = ROOM / 2, QKEY = 0x11111111, NO_KEY = 0x7f7f7f00 };

struct end {
	struct ibv_qp *qp;
	struct ibv_cq *cq[2];
	struct ibv_mw *mw;
	int access, reads, gives, qkey;
};

extern struct ibv_context *dev;
extern struct end ends[2];
extern struct ibv_srq *srq;
extern struct ibv_ah *ah;

void begin_device(void);
void end_device(void);
void begin_case(enum ibv_qp_type type, int shared);
void end_case(void);
void set(struct end *e, const char *what, int value);
void move(struct end *e, const char *state);
void join(struct end *e);
struct ibv_sge at(struct end *e, uint32_t length, const char *key);
struct ibv_mr *memory_of(const char *key);
uint32_t rkey_of(const char *key);
