package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// policies are the constructors of policies by name, with what they do.
var policies = []struct {
	name, help string
	make       func() Policy
}{
	{"chain", "the least time for the chain of operations that makes it again, by size and staleness", newDefault},
	{"dtr-eq", "DTR with equivalence classes of evicted storages", func() Policy { return new(dtrClasses) }},
	{"dtr", "DTR with exact neighbourhoods of evicted storages", func() Policy { return new(dtrExact) }},
	{"dtr-local", "DTR with the cost of the storage alone", func() Policy { return new(dtrLocal) }},
	{"lru", "the storage that was not used for the longest time", func() Policy { return new(lru) }},
	{"largest", "the largest storage", func() Policy { return new(largest) }},
	{"random", "any storage", func() Policy { return &random{rng: rand.New(rand.NewPCG(1, 2))} }},
}

// A Description says what a policy does.
type Description struct{ Name, Help string }

// Policies describes the policies; the first is the default.
func Policies() []Description {
	all := make([]Description, len(policies))
	for i, p := range policies {
		all[i] = Description{p.name, p.help}
	}
	return all
}

// PolicyNames returns the names of the policies that NewPolicy accepts.
func PolicyNames() []string {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.name
	}
	return names
}

// NewPolicy returns a policy by name.
func NewPolicy(name string) (Policy, error) {
	for _, p := range policies {
		if p.name == name {
			return p.make(), nil
		}
	}
	return nil, fmt.Errorf("remat: no policy %q; policies are %s", name, strings.Join(PolicyNames(), ", "))
}

// Default returns the policy that is used where none is configured.
func Default() Policy { return newDefault() }

// newDefault returns the project's own policy.
func newDefault() Policy { return &planned{newChain(defaultWeights)} }
