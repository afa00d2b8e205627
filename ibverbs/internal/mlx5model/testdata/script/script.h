/* What the scenes of the script share: the objects of one end, which is connected to itself. */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); exit(1); } } while (0)

/* What the objects of a scene are. begin says what stands for 0. */
struct props {
	enum ibv_qp_type type;
	struct ibv_qp_cap cap;
	int depth, srq_wr, srq_sge, ethernet, access, options;
};

struct one {
	enum ibv_wr_opcode op;
	int flags;
	uint32_t length; /* of inline data, else there are two parts of 8 bytes */
	int receives;
};

extern char memory[8192];
extern struct ibv_pd *pd;
extern struct ibv_comp_channel *channel;
extern struct ibv_cq *cq;
extern struct ibv_qp *qp;
extern struct ibv_srq *srq;
extern struct ibv_mr *mr;
extern struct ibv_ah *ah[2];

void begin(const struct props *k);
void end(void);
struct ibv_sge at(int offset, uint32_t length);
struct ibv_send_wr request(const struct one *o, struct ibv_sge *two);
void post(struct ibv_send_wr *wrs, int n);
void receive(int n, const int *parts);
void await(int n);
void each(const struct one *o, int n);

void connected(void), routed(void), events(void), receives(void), shared(void), unreliable(void), datagrams(void), addresses(void),
	inlined(void), gathered(void), windows(void), large(void), resized(void), grouped(void), heard(void), agreed(void);
