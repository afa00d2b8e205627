/* Registers memory that a file is. A file of memory stands for a dma-buf. */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MUST(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	MUST(list && *list);
	struct ibv_context *dev = ibv_open_device(*list);
	MUST(dev);
	ibv_free_device_list(list);
	struct ibv_pd *pd = ibv_alloc_pd(dev);
	MUST(pd);
	int fd = memfd_create("dmabuf", MFD_CLOEXEC);
	MUST(fd >= 0 && !ftruncate(fd, 8192));
	MUST(!ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE) && errno == EBADF);
	MUST(!ibv_reg_dmabuf_mr(pd, 8192, 4096, 0, fd, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
	MUST(!ibv_reg_dmabuf_mr(pd, 0, 4096, 8, fd, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 4096, 4096, 1ULL << 40, fd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	MUST(mr && mr->lkey && mr->lkey == mr->rkey);
	MUST(!close(fd));
	MUST(!ibv_dereg_mr(mr));
	MUST(!ibv_dealloc_pd(pd));
	MUST(!ibv_close_device(dev));
	puts("registered");
	return 0;
}
