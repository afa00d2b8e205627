package transport_test

import (
	"context"
	"fmt"
	"sync"

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
