package arch

import "fmt"

// An exception permits one violation of a rule in one package.
type exception struct {
	rule   string
	pkg    string
	what   string // an import path, or a function such as time.Now
	reason string
}

var exceptions = []exception{
	{"drivers", "mem/memtest", "driver/sim", "the suite runs allocators on the simulated device"},
	{"drivers", "mem/memtest", "driver/fault", "the suite fails every driver call in turn"},
	{"determinism", "driver/host", "time.Now", "the clock of driver.Timing"},
	{"determinism", "mem/ipc", "time.Now", "how long a server waits for a peer"},
	{"determinism", "mem/ipc", "crypto/rand.Reader", "tickets must be hard to guess; Options.Rand replaces it"},
	{"determinism", "mem/raw", "crypto/rand.Read", "keys of pages must be hard to guess"},
	{"drivers", "driver/drivertest", "driver/sim", "tests open simulated devices with it"},
	{"drivers", "driver/drivertest/multiprocess", "driver/drivertest", "both are parts of the suite of drivers"},
	{"drivers", "driver/drivercost", "driver/sim", "it makes the simulator's cost model"},
	{"drivers", "replay/internal/capacity", "driver/sim", "the largest memory that a simulated device can have"},
	{"drivers", "replay/verify", "driver/sim", "the cost model of driver calls"},
	{"drivers", "replay", "driver/sim", "the cost model of driver calls, and the device on which settings are compared"},
	{"determinism", "view", "crypto/rand.Text", "the token of a page must be hard to guess"},
	{"determinism", "view", "time.NewTimer", "how often a page that is attached to a program asks it for news"},
	{"drivers", "engine", "driver/cuda", "Open takes the best device of the machine"},
	{"drivers", "engine", "driver/host", "the host is the best device where there is no GPU"},
	{"output", "engine", "log/slog", "Config.Log is the caller's, and receives only what Session.WithDebug requests"},
	{"determinism", "internal/testkit", "crypto/rand.Read", "new seeds for random tests, which print them when " +
		"they fail"},
	{"determinism", "collective", "time.NewTicker", "the interval of checks for a transport's errors"},
	{"determinism", "collective/internal/nccl", "time.NewTicker", "the interval of queries to NCCL"},
	{"determinism", "collective/internal/rendezvous", "time.NewTimer", "the time limit for missing and silent ranks"},
	{"determinism", "collective/internal/rendezvous", "time.AfterFunc", "the same time limit"},
	{"determinism", "collective/internal/rendezvous", "time.NewTicker", "heartbeats between ranks"},
	{"determinism", "collective/internal/auth", "crypto/rand.Read", "nonces must never repeat"},
	{"determinism", "collective/internal/rendezvous", "crypto/rand.Read", "keys of links must be hard to guess"},
}

// allowed reports whether an exception covers a violation in pkg, and marks the exception as needed.
func (m *Module) allowed(rule, pkg, what string) bool {
	for i, e := range m.exceptions {
		if e.rule == rule && e.pkg == pkg && e.what == what {
			m.used[i] = true
			return true
		}
	}
	return false
}

// StaleExceptions returns the exceptions of existing packages that no rule has used since the module was loaded.
func (m *Module) StaleExceptions() []Problem {
	exists := map[string]bool{}
	m.Packages(func(pkg string, _ []*File) { exists[pkg] = true })
	var problems []Problem
	for i, e := range m.exceptions {
		if exists[e.pkg] && !m.used[i] {
			problems = append(problems, Problem{
				"exceptions", "internal/arch/exceptions.go",
				fmt.Sprintf("%s no longer needs the exception for %s: remove it", e.pkg, e.what),
			})
		}
	}
	return problems
}
