package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/purerdma/purerdma/socketboot/bootstrap"
)

// gather tells all ranks what this one says, and returns what each does.
func gather[T any](ctx context.Context, job bootstrap.Job, mine T) ([]T, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	texts, err := job.AllGather(ctx, text)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(texts))
	for rank, text := range texts {
		if err := json.Unmarshal(text, &all[rank]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return all, nil
}
