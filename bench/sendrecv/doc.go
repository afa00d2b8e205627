// Command sendrecv measures messages between the ranks of a job (package transport), and checks their data.
//
//	go run ./bench/sendrecv --ranks 4
//	mpirun -np 8 -x PURERDMA_ROOT=127.0.0.1:7000 sendrecv --pattern alltoall --hosts 2
//
// By itself it starts --ranks processes on this machine. Started by torchrun, mpirun, srun or with PURERDMA_RANK, each process is the rank
// that package launch finds, and rank 0 tells the results.
//
// # Transports
//
// Each pair of ranks takes the first transport that can: shared memory on one host, else the network; --transport forces one. P2P needs
// GPUs and is not among them. Where there is no RDMA device the network is softroce. --hosts tells the ranks to be on that many hosts, in
// blocks, so that one machine uses both. NCCL's variables count (NCCL_BUFFSIZE, NCCL_SOCKET_IFNAME and so on: purerdma variables).
//
// # What is measured
//
//   - ring: each rank sends a message to the next one and receives one from the one before, as sendrecv_perf of nccl-tests does.
//   - alltoall: each rank has a message of a part of the size for each rank, itself too, as alltoall_perf does.
//   - random: in each round each rank sends --messages messages to every other, all at once, of sizes by chance from 0 B to --max, small
//     and large ones alike; all data is checked.
//
// Columns are those of nccl-tests. time is that of one iteration: the mean of the ranks' times, and of the rounds the median. algbw is size
// by time; busbw of alltoall leaves out the part that each rank has for itself. One more iteration in each round, not timed, has
// its data checked; wrong is bytes, of all ranks. A wrong byte fails the command.
//
// --idle measures instead the processor time of a job whose ranks are all connected while nobody sends or receives.
package main
