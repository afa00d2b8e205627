// pair measures messages between two MPI processes, each on a processor of its own:
//
//	pair latency|stream|batch BYTES COUNT CPU CPU
//
// It prints the seconds of one message: half a round trip, the median of up to 1,000 parts; or of a stream that ends with an answer, one by
// one or by 64 under way.
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { window = 64, most = 1000 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double latency(int rank, char *buf, int size, int count) {
    static double part[most];
    int parts = count < most ? count : most, each = count / parts;
    for (int p = 0; p < parts; p++) {
        double began = MPI_Wtime();
        for (int i = 0; i < each; i++) {
            if (rank == 0) MPI_Send(buf, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(buf, size, MPI_BYTE, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1) MPI_Send(buf, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
        part[p] = (MPI_Wtime() - began) / each / 2;
    }
    qsort(part, parts, sizeof *part, ascending);
    return part[parts / 2];
}

static double stream(int rank, char *buf, int size, int count, int at_once) {
    MPI_Request requests[window];
    double began = MPI_Wtime();
    for (int i = 0; i < count; i += at_once) {
        if (at_once == 1) {
            if (rank == 0) MPI_Send(buf, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            else MPI_Recv(buf, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            continue;
        }
        for (int k = 0; k < at_once; k++) {
            if (rank == 0) MPI_Isend(buf, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[k]);
            else MPI_Irecv(buf + (size_t)k * size, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[k]);
        }
        MPI_Waitall(at_once, requests, MPI_STATUSES_IGNORE);
    }
    char answer = 0;
    if (rank == 0) MPI_Recv(&answer, 1, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else MPI_Send(&answer, 1, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    return (MPI_Wtime() - began) / count;
}

static double measure(const char *kind, int rank, char *buf, int size, int count) {
    if (!strcmp(kind, "latency")) return latency(rank, buf, size, count);
    return stream(rank, buf, size, count, strcmp(kind, "batch") ? 1 : window);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 6 || ranks != 2) {
        fprintf(stderr, "usage: mpirun -np 2 pair latency|stream|batch BYTES COUNT CPU CPU\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(atoi(argv[4 + rank]), &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
    int size = atoi(argv[2]), count = (atoi(argv[3]) + window - 1) / window * window;
    char *buf = calloc(window, size);
    if (!buf) MPI_Abort(MPI_COMM_WORLD, 3);
    measure(argv[1], rank, buf, size, window); // warms up
    MPI_Barrier(MPI_COMM_WORLD);
    double each = measure(argv[1], rank, buf, size, count);
    if (rank == 0) printf("seconds a message: %.12f\n", each);
    free(buf);
    MPI_Finalize();
    return 0;
}
