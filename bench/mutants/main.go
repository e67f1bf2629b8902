// Command mutants measures how many small faults the tests of packages find.
//
//	go run ./bench/mutants -seed 1 -n 200 ./mem/... ./driver/...
//	go run ./bench/mutants -at mem/bfc/timed.go:33
//
// It plants one fault at a time, in a copy of a file that replaces it for one run of the package's own tests (go test
// -short -overlay): a condition negated, a comparison off by one, a statement deleted, a constant changed, arguments
// swapped. It prints each fault that the tests do not find, and the share of those found, by package. The same seed
// and the same code give the same faults. Faults that change nothing that a test could see are listed with their
// reasons in equivalent.txt, and are not planted.
//
// Faults that do not compile are replaced by others. A run that ends by its time limit counts as found, and is printed,
// because a test should fail sooner: the limit is five times what the tests take, so the fault made a loop or a wait
// that does not end.
//
// The tests of an internal package and of the packages that import it are run, until one fails: users reach the package
// through those alone. Other packages have to be tested by themselves.
//
// These faults are not planted, because no user can notice them:
//   - in packages without tests, and in internal packages that only tests import, which are tests themselves;
//   - in checks of invariants, in files named invariants.go: they are tests, too, and report no more than a text;
//   - another order of the values in a text, or of joined errors: errors.Is does not depend on it;
//   - another constant returned together with an error that is not nil: callers do not use it;
//   - another capacity of a slice or a map: it changes no result.
//
// Of 29 random faults of seeds 2102 and 2103 over the packages of make mutants, the tests found 24, 83 %. Of the
// other five they now find three; one is listed as equivalent, and the code of one is gone.
package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
)

// options are the flags.
type options struct {
	seed     uint64
	n        int
	at       string
	race     bool
	verbose  bool
	tags     string
	patterns []string
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "of the choice of faults")
	flag.IntVar(&o.n, "n", 100, "`number` of faults to plant, over all packages")
	flag.StringVar(&o.at, "at", "", "plant every fault of a `FILE or FILE:LINE`, and no others")
	flag.BoolVar(&o.race, "race", false, "run the tests under the race detector")
	flag.BoolVar(&o.verbose, "v", false, "print the faults that are found, too")
	flag.StringVar(&o.tags, "tags", "", "build `tags`")
	flag.Parse()
	o.patterns = flag.Args()
	if len(o.patterns) == 0 {
		o.patterns = []string{"./..."}
	}
	if err := run(os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, o options) error {
	pkgs, err := list(o)
	if err != nil {
		return err
	}
	equivalent, err := readEquivalents()
	if err != nil {
		return err
	}
	var all []fault
	for _, p := range pkgs {
		faults, err := p.faults()
		if err != nil {
			return err
		}
		for _, f := range faults {
			if o.wants(f) && equivalent[f.key()] == "" {
				all = append(all, f)
			}
		}
	}
	rng := rand.New(rand.NewPCG(o.seed, 0x6d7574616e7473))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	fmt.Fprintf(out, "%d packages, %d possible faults, seed %d\n", len(pkgs), len(all), o.seed)
	return newPlanter(out, o).plantAll(all)
}

// wants reports whether a fault is at the place of the flag -at.
func (o options) wants(f fault) bool {
	file, line, ok := strings.Cut(o.at, ":")
	if n, err := strconv.Atoi(line); ok && (err != nil || n != f.line) {
		return false
	}
	return o.at == "" || file == f.path
}
