package transport_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/purerdma/purerdma/shmtransport"
	"github.com/purerdma/purerdma/socketboot/bootstrap"
	"github.com/purerdma/purerdma/transport"
)

// Which transport would connect two ranks, and why not a better one. The ranks of this job are goroutines.
func ExampleCommunicator_Candidate() {
	jobs := bootstrap.InMemory(2, nil)
	var both sync.WaitGroup
	for rank, job := range jobs {
		both.Go(func() {
			defer job.Close()
			variables := transport.Variables{SHMDisable: true}
			comm, err := transport.New(context.Background(), transport.Config{Job: job, Variables: &variables, Transports: nil})
			if err != nil {
				fmt.Println(err)
				return
			}
			defer comm.Close()
			if rank == 0 {
				fmt.Println(comm.Candidate(1))
			}
		})
	}
	both.Wait()
	// Output: none; not COLLNET: collective networks are not supported (rank 0) <nil>
}

// Each rank passes a message on to the next one of a circle. The ranks are goroutines here; processes get their Job from package launch.
func ExampleCommunicator_SendRecv() {
	const ranks = 3
	jobs := bootstrap.InMemory(ranks, nil)
	said := make([]string, ranks)
	pass := func(ctx context.Context, rank int) error {
		defer jobs[rank].Close()
		memory := shmtransport.New(shmtransport.Config{})
		defer memory.Close()
		comm, err := transport.New(ctx, transport.Config{Job: jobs[rank], Transports: []transport.Transport{memory}})
		if err != nil {
			return err
		}
		defer comm.Close()
		if err := comm.Connect(ctx, transport.Pairs(rank, ranks, 1)); err != nil {
			return err
		}
		in := make([]byte, 100)
		n, err := comm.SendRecv(ctx, (rank+1)%ranks, fmt.Appendf(nil, "hello from rank %d", rank), (rank+ranks-1)%ranks, in)
		said[rank] = string(in[:n])
		return err
	}
	var all sync.WaitGroup
	for rank := range ranks {
		all.Go(func() {
			if err := pass(context.Background(), rank); err != nil {
				fmt.Println(err)
			}
		})
	}
	all.Wait()
	for rank, text := range said {
		fmt.Printf("rank %d: %s\n", rank, text)
	}
	// Output:
	// rank 0: hello from rank 2
	// rank 1: hello from rank 0
	// rank 2: hello from rank 1
}

// Every rank exchanges with every rank at once, in whatever order the messages come.
func ExampleGroup() {
	jobs := bootstrap.InMemory(1, nil)
	defer jobs[0].Close()
	comm, err := transport.New(context.Background(), transport.Config{Job: jobs[0]})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer comm.Close()
	group := comm.NewGroup()
	in := make([][]byte, comm.Size())
	for peer := range comm.Size() {
		in[peer] = make([]byte, 10)
		group.Send(peer, []byte("all to all"))
		group.Recv(peer, in[peer])
	}
	err = group.Wait(context.Background())
	fmt.Printf("%s %v\n", in[0], err)
	// Output: all to all <nil>
}
