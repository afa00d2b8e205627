// A preload library that shows an unmodified verbs program the model's device. It
// forwards what the program does to /dev/infiniband/uverbs<n> to the model, over the
// Unix socket that MLX5MODEL_SOCKET names, and hides the machine's own devices. The
// model reads and writes the program's memory itself, so that a request is numbers
// only; see wire.go for them. sysfs comes from SYSFS_PATH, which libibverbs heeds.
//
// The descriptor of an open device is a memory file of the model, whose pages are the
// pages of doorbells: mmap on it needs no help. With MLX5MODEL_TRAP the pages are mapped
// without the right to write: each store faults, is executed as a single step, and is told
// to the model before the program goes on.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <ucontext.h>
#include <unistd.h>

#define DEVICE "/dev/infiniband/uverbs"
#define NETLINK_RDMA 20
#define MAX_OPEN 64

enum { OP_OPEN = 1, OP_IOCTL, OP_WRITE, OP_DESCRIPTOR, OP_STORE };

struct request {
	uint64_t op, a, b, c;
};

// A descriptor that comes with a reply is stored at fd_at, fd_size bytes wide.
struct reply {
	int64_t result; // 0 or more, or the negative errno
	uint64_t fd_at, fd_size;
};

static struct { int fd, sock; dev_t rdev; } opened[MAX_OPEN];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define NEXT(name) ({ static __typeof__(&name) next; if (!next) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name); next; })

static int slot_of(int fd)
{
	if (fd < 0)
		return -1;
	for (int i = 0; i < MAX_OPEN; i++)
		if (opened[i].sock && opened[i].fd == fd)
			return i;
	return -1;
}

static int receive(int sock, struct reply *r)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec v = { r, sizeof *r };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	ssize_t n;
	do
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n != sizeof *r) {
		r->result = -EIO;
		return -1;
	}
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int fd = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
	return fd;
}

// The model is told the number of a descriptor, by which the program will name it.
static int64_t call(int sock, struct request q, int *fd)
{
	struct reply r;
	pthread_mutex_lock(&lock);
	if (send(sock, &q, sizeof q, MSG_NOSIGNAL) != sizeof q) {
		pthread_mutex_unlock(&lock);
		return -EIO;
	}
	int got = receive(sock, &r);
	if (got >= 0) {
		if (r.fd_size == 8)
			*(uint64_t *)(uintptr_t)r.fd_at = got;
		else if (r.fd_size == 4)
			*(uint32_t *)(uintptr_t)r.fd_at = got;
		struct request number = { OP_DESCRIPTOR, got };
		send(sock, &number, sizeof number, MSG_NOSIGNAL);
	}
	pthread_mutex_unlock(&lock);
	if (fd)
		*fd = got;
	return r.result;
}

static int is_device(const char *path)
{
	return path && !strncmp(path, DEVICE, strlen(DEVICE)) && getenv("MLX5MODEL_SOCKET");
}

static dev_t number_of(const char *path)
{
	return makedev(231, 192 + atoi(path + strlen(DEVICE)));
}

static int open_device(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	strncpy(a.sun_path, getenv("MLX5MODEL_SOCKET"), sizeof a.sun_path - 1);
	int sock = NEXT(socket)(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), fd = -1;
	if (sock < 0)
		return -1;
	if (connect(sock, (struct sockaddr *)&a, sizeof a)) {
		NEXT(close)(sock);
		return -1;
	}
	struct request q = { OP_OPEN, atoi(path + strlen(DEVICE)), getpid(), getenv("MLX5MODEL_TRAP") != NULL };
	int64_t result = call(sock, q, &fd);
	for (int i = 0; result >= 0 && i < MAX_OPEN; i++)
		if (!opened[i].sock) {
			opened[i].fd = fd;
			opened[i].rdev = number_of(path);
			opened[i].sock = sock;
			return fd;
		}
	NEXT(close)(sock);
	if (fd >= 0)
		NEXT(close)(fd);
	errno = result < 0 ? -result : EMFILE;
	return -1;
}

static int answer(int64_t result)
{
	if (result >= 0)
		return result;
	errno = -result;
	return -1;
}

#define OPEN(name) \
	int name(const char *path, int flags, ...) \
	{ \
		va_list l; \
		va_start(l, flags); \
		mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(l, mode_t) : 0; \
		va_end(l); \
		return is_device(path) ? open_device(path) : NEXT(name)(path, flags, mode); \
	}
OPEN(open)
OPEN(open64)

// A socket is closed with the last descriptor of the file.
int close(int fd)
{
	int i = slot_of(fd);
	if (i >= 0) {
		int sock = opened[i].sock, others = 0;
		opened[i].sock = 0;
		for (int j = 0; j < MAX_OPEN; j++)
			others += opened[j].sock == sock;
		if (!others)
			NEXT(close)(sock);
	}
	return NEXT(close)(fd);
}

// Another descriptor of a device's file is one of the same open file.
static int duplicated(int of, int fd)
{
	int i = slot_of(of);
	if (i < 0 || fd < 0 || fd == of)
		return fd;
	for (int j = 0; j < MAX_OPEN; j++)
		if (!opened[j].sock) {
			opened[j].fd = fd;
			opened[j].rdev = opened[i].rdev;
			opened[j].sock = opened[i].sock;
			return fd;
		}
	NEXT(close)(fd);
	errno = EMFILE;
	return -1;
}

int dup(int fd)
{
	return duplicated(fd, NEXT(dup)(fd));
}

#define FCNTL(name) \
	int name(int fd, int op, ...) \
	{ \
		va_list l; \
		va_start(l, op); \
		void *arg = va_arg(l, void *); \
		va_end(l); \
		int result = NEXT(name)(fd, op, arg); \
		return op == F_DUPFD || op == F_DUPFD_CLOEXEC ? duplicated(fd, result) : result; \
	}
FCNTL(fcntl)
FCNTL(fcntl64)

static void pretend(struct stat *st, dev_t rdev)
{
	memset(st, 0, sizeof *st);
	st->st_mode = S_IFCHR | 0666;
	st->st_rdev = rdev;
}

int stat(const char *path, struct stat *st)
{
	if (!is_device(path))
		return NEXT(stat)(path, st);
	if (access(getenv("MLX5MODEL_SOCKET"), F_OK))
		return -1;
	pretend(st, number_of(path));
	return 0;
}

int fstat(int fd, struct stat *st)
{
	int i = slot_of(fd);
	if (i < 0)
		return NEXT(fstat)(fd, st);
	pretend(st, opened[i].rdev);
	return 0;
}

int ioctl(int fd, unsigned long number, ...)
{
	va_list l;
	va_start(l, number);
	void *arg = va_arg(l, void *);
	va_end(l);
	int i = slot_of(fd);
	if (i < 0)
		return NEXT(ioctl)(fd, number, arg);
	struct request q = { OP_IOCTL, number, (uintptr_t)arg };
	return answer(call(opened[i].sock, q, NULL));
}

ssize_t write(int fd, const void *data, size_t n)
{
	int i = slot_of(fd);
	if (i < 0)
		return NEXT(write)(fd, data, n);
	struct request q = { OP_WRITE, (uintptr_t)data, n };
	return answer(call(opened[i].sock, q, NULL));
}

// Devices that RDMA netlink lists would come before those of SYSFS_PATH.
int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA && getenv("MLX5MODEL_SOCKET")) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return NEXT(socket)(domain, type, protocol);
}

#ifdef __x86_64__
#define PAGE 4096UL
#define MAX_PAGES 256
#define TRAP_FLAG 0x100

// Pages of doorbells.
static struct { uintptr_t at; uint64_t offset; int sock; } pages[MAX_PAGES];

// The page that a store is on its way to, and where in it.
static pthread_mutex_t stepping = PTHREAD_MUTEX_INITIALIZER;
static int step_page;
static uintptr_t step_at;

static void give_up(int sig)
{
	signal(sig, SIG_DFL);
}

static void on_fault(int sig, siginfo_t *info, void *u)
{
	uintptr_t at = (uintptr_t)info->si_addr;
	for (int i = 0; i < MAX_PAGES; i++) {
		if (!pages[i].at || at - pages[i].at >= PAGE)
			continue;
		pthread_mutex_lock(&stepping);
		step_page = i;
		step_at = at;
		mprotect((void *)pages[i].at, PAGE, PROT_READ | PROT_WRITE);
		((ucontext_t *)u)->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
		return;
	}
	give_up(sig);
}

static void on_step(int sig, siginfo_t *info, void *u)
{
	ucontext_t *c = u;
	if (!step_at) {
		give_up(sig);
		return;
	}
	c->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
	mprotect((void *)pages[step_page].at, PAGE, PROT_READ);
	struct request q = { OP_STORE, pages[step_page].offset + (step_at - pages[step_page].at) };
	int err = errno;
	call(pages[step_page].sock, q, NULL);
	errno = err;
	step_at = 0;
	pthread_mutex_unlock(&stepping);
}

static int trap(int i, void *at, size_t n, off_t offset)
{
	struct sigaction fault = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	struct sigaction step = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO };
	if (sigaction(SIGSEGV, &fault, NULL) || sigaction(SIGTRAP, &step, NULL))
		return -1;
	for (int p = 0; p < MAX_PAGES; p++)
		if (!pages[p].at && n == PAGE) {
			pages[p].offset = offset;
			pages[p].sock = opened[i].sock;
			pages[p].at = (uintptr_t)at;
			return 0;
		}
	errno = ENOMEM;
	return -1;
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
	int i = getenv("MLX5MODEL_TRAP") ? slot_of(fd) : -1;
	if (i >= 0)
		prot &= ~PROT_WRITE;
	void *p = (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
	if (i >= 0 && p != MAP_FAILED && trap(i, p, n, offset)) {
		syscall(SYS_munmap, p, n);
		return MAP_FAILED;
	}
	return p;
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
	return mmap(at, n, prot, flags, fd, offset);
}

int munmap(void *at, size_t n)
{
	for (int p = 0; p < MAX_PAGES; p++)
		if (pages[p].at == (uintptr_t)at)
			pages[p].at = 0;
	return syscall(SYS_munmap, at, n);
}
#endif
