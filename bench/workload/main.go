// Command workload writes work of replay/workloads as a script: go run ./bench/workload -seed 1 moe >moe.script
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/ashlar-go/ashlar/replay/workloads"
)

func main() {
	if err := write(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

func write(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("workload", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: workload [-seed N] NAME >x.script\n\nThe names:")
		for _, w := range workloads.All() {
			fmt.Fprintf(flags.Output(), "  %-15s %s\n", w.Name, w.What)
		}
	}
	seed := flags.Uint64("seed", 1, "another seed, other work of the same kind")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	for _, w := range workloads.All() {
		if w.Name != flags.Arg(0) {
			continue
		}
		s, err := w.Program(*seed).Script()
		if err != nil {
			return err
		}
		_, err = io.WriteString(out, s.String())
		return err
	}
	flags.Usage()
	return fmt.Errorf("no workload is named %q", flags.Arg(0))
}
