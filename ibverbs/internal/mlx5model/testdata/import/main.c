/* Opens the device, and uses it by another descriptor of the same open file. */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MUST(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)

static char memory[8192] __attribute__((aligned(4096)));

int main(void)
{
	struct stat st;
	struct ibv_device **list = ibv_get_device_list(NULL);
	MUST(list && *list);
	struct ibv_context *dev = ibv_open_device(*list), *again;
	MUST(dev);
	ibv_free_device_list(list);
	struct ibv_pd *pd, *same_pd;
	struct ibv_mr *mr, *same_mr;
	MUST((pd = ibv_alloc_pd(dev)));
	MUST((mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)));

	int first = dup(dev->cmd_fd), second = fcntl(first, F_DUPFD_CLOEXEC, 100);
	MUST(first >= 0 && second >= 100);
	MUST(!fstat(second, &st) && S_ISCHR(st.st_mode));
	MUST(!close(first));
	MUST((again = ibv_import_device(second)));
	MUST((same_pd = ibv_import_pd(again, pd->handle)));
	MUST((same_mr = ibv_import_mr(same_pd, mr->handle)));
	MUST(same_mr->lkey == mr->lkey && same_mr->rkey == mr->rkey && same_mr->length == sizeof memory);

	/* What the first descriptor made is there as long as there is one. */
	uint32_t handle = mr->handle;
	ibv_unimport_mr(same_mr);
	MUST(!ibv_close_device(dev));
	MUST((same_mr = ibv_import_mr(same_pd, handle)));
	MUST(!ibv_dereg_mr(same_mr));
	MUST(!ibv_dealloc_pd(same_pd));
	MUST(!ibv_close_device(again));
	MUST(fstat(second, &st) < 0);
	puts("imported");
	return 0;
}
