package arch

import "fmt"

// An exception lets one package do one thing that a rule forbids.
type exception struct {
	rule   string
	pkg    string
	what   string // what the rule names: an import path, or a function such as time.Now
	reason string
}

var exceptions = []exception{
	{"drivers", "mem/memtest", "driver/sim", "the suite for allocators runs them on the simulated device"},
	{"drivers", "mem/memtest", "driver/fault", "and fails every driver call in turn"},
	{"determinism", "driver/host", "time.Now", "it is the clock that driver.Timing reads"},
	{"determinism", "mem/ipc", "crypto/rand.Reader", "tickets must be hard to guess; Options.Rand replaces it"},
	{"determinism", "mem/raw", "crypto/rand.Read", "keys of pages must be hard to guess"},
	{"determinism", "internal/testkit", "crypto/rand.Read", "tests want fresh seeds, which it logs"},
	{"drivers", "driver/drivercost", "driver/sim", "it makes the simulator's cost model"},
	{"drivers", "replay/internal/capacity", "driver/sim", "the largest memory that a simulated device can have"},
	{"drivers", "replay/verify", "driver/sim", "the cost model of driver calls"},
	{"drivers", "replay", "driver/sim", "what driver calls cost, and the device that settings are compared on"},
	{"drivers", "engine", "driver/cuda", "Open takes the best device that there is"},
	{"drivers", "engine", "driver/host", "which is the host where there is no other"},
	{"output", "engine", "log/slog", "Config.Log is the caller's, and told of what Session.WithDebug asks for alone"},
	{"determinism", "internal/testkit", "crypto/rand.Read", "new seeds for random tests, which print them when they fail"},
	{"determinism", "collective", "time.NewTicker", "the pause between looks at a transport's asynchronous errors"},
	{"determinism", "collective/internal/nccl", "time.NewTicker", "the pause between questions to NCCL, which wakes nobody"},
	{"determinism", "collective/internal/rendezvous", "time.NewTimer", "a rank that never comes, or falls silent, is an error after a limit"},
	{"determinism", "collective/internal/rendezvous", "time.AfterFunc", "the same"},
	{"determinism", "collective/internal/rendezvous", "time.NewTicker", "ranks tell each other now and then that they are alive"},
	{"determinism", "collective/internal/rendezvous", "crypto/rand.Read", "what a meeting's members know each other by must be hard to guess"},
}

// allowed reports whether an exception covers what pkg does, and notes that it is needed.
func (m *Module) allowed(rule, pkg, what string) bool {
	for i, e := range m.exceptions {
		if e.rule == rule && e.pkg == pkg && e.what == what {
			m.used[i] = true
			return true
		}
	}
	return false
}

// StaleExceptions returns the exceptions that no rule asked for since the module was loaded, for packages that exist.
func (m *Module) StaleExceptions() []Problem {
	exists := map[string]bool{}
	m.Packages(func(pkg string, _ []*File) { exists[pkg] = true })
	var problems []Problem
	for i, e := range m.exceptions {
		if exists[e.pkg] && !m.used[i] {
			problems = append(problems, Problem{
				"exceptions", "internal/arch/exceptions.go",
				fmt.Sprintf("%s no longer needs the exception for %s: take it out", e.pkg, e.what),
			})
		}
	}
	return problems
}
