// A library to preload: writes every RDMA_VERBS_IOCTL of a program to the file that PURERDMA_DUMP names, as it was before the call:
//   ioctl OBJECT METHOD DRIVER ERRNO
//   attr ID LEN FLAGS DATA BYTES
// and every command that goes to a uverbs file by write(2):
//   write ERRNO BYTES
// Numbers are hexadecimal, BYTES is what DATA points to, "-" where LEN is 8 or less.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static FILE *dump(void)
{
	static FILE *f;
	if (!f) {
		const char *name = getenv("PURERDMA_DUMP");
		f = name ? fopen(name, "w") : NULL;
		if (!f)
			abort();
	}
	return f;
}

static void bytes(FILE *f, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fprintf(f, "%02x", ((const unsigned char *)p)[i]);
}

int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int, unsigned long, void *);
	va_list ap;
	va_start(ap, request);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	if (!next)
		next = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
	if (request != RDMA_VERBS_IOCTL)
		return next(fd, request, arg);

	char *text;
	size_t size;
	FILE *mem = open_memstream(&text, &size);
	struct ib_uverbs_ioctl_hdr h = *(struct ib_uverbs_ioctl_hdr *)arg;
	for (int i = 0; i < h.num_attrs; i++) {
		const struct ib_uverbs_attr *a = &((struct ib_uverbs_ioctl_hdr *)arg)->attrs[i];
		fprintf(mem, "attr %x %x %x %llx ", a->attr_id, a->len, a->flags, (unsigned long long)a->data);
		if (a->len > 8)
			bytes(mem, (const void *)(unsigned long)a->data, a->len);
		else
			fputc('-', mem);
		fputc('\n', mem);
	}
	fclose(mem);
	int ret = next(fd, request, arg), err = errno;
	fprintf(dump(), "ioctl %x %x %x %x\n%s", h.object_id, h.method_id, h.driver_id, ret ? err : 0, text);
	fflush(dump());
	free(text);
	errno = err;
	return ret;
}

static int is_uverbs(int fd)
{
	char link[64], path[128];
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return 0;
	path[n] = 0;
	return strstr(path, "/uverbs") != NULL;
}

ssize_t write(int fd, const void *buf, size_t n)
{
	static ssize_t (*next)(int, const void *, size_t);
	if (!next)
		next = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	if (!is_uverbs(fd))
		return next(fd, buf, n);
	ssize_t ret = next(fd, buf, n);
	int err = errno;
	fprintf(dump(), "write %x ", ret < 0 ? err : 0);
	bytes(dump(), buf, n);
	fputc('\n', dump());
	fflush(dump());
	errno = err;
	return ret;
}
