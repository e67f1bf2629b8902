package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
)

type doctorCmd struct {
	Drivers []string `arg:"" optional:"" name:"driver" help:"Drivers to check (default: all)."`
	JSON    bool     `name:"json" help:"Print one JSON object for each requirement."`
}

// Help implements kong.HelpProvider.
func (*doctorCmd) Help() string {
	return `Lists the requirements of each driver. For each requirement it prints where it searched, what it found and, if something is
missing, how to install it.

The exit code is 1 if a driver named as an argument cannot work on this machine.

Examples:

    ashlar doctor
    ashlar doctor cuda && ./train`
}

// findingLine is the output of --json.
type findingLine struct {
	Driver string `json:"driver"`
	What   string `json:"what"`
	State  string `json:"state"` // good, lacking (optional), broken
	Where  string `json:"where,omitempty"`
	Found  string `json:"found,omitempty"`
	Do     string `json:"do,omitempty"`
}

// Run implements the command.
func (c *doctorCmd) Run(s *streams) error {
	names := c.Drivers
	if len(names) == 0 {
		names = driver.Drivers()
	}
	for _, name := range names {
		if driver.Lookup(name) == nil {
			return usageError{fmt.Errorf("no driver %q: this program has %s", name,
				strings.Join(driver.Drivers(), ", "))}
		}
	}
	broken := false
	var failures []error
	for _, name := range names {
		findings := driver.Lookup(name).Diagnose()
		if slices.ContainsFunc(findings, func(f driver.Finding) bool { return f.State == driver.Broken }) {
			broken = true
		}
		if !c.JSON {
			writeFindings(s.out, name, findings)
			continue
		}
		for _, f := range findings {
			failures = append(failures, json.NewEncoder(s.out).Encode(findingLine{
				name, f.What, f.State.String(), f.Where, f.Found, f.Do,
			}))
		}
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	if broken && len(c.Drivers) > 0 {
		return exit(exitDiffers)
	}
	return nil
}

func writeFindings(w *page, name string, findings []driver.Finding) {
	fmt.Fprintln(w, name)
	if len(findings) == 0 {
		fmt.Fprintln(w, "  good     needs nothing")
	}
	for _, f := range findings {
		text := f.What
		if f.Found != "" {
			text += ": " + f.Found
		}
		if f.Where != "" && !strings.Contains(f.Found, f.Where) {
			text += " (" + f.Where + ")"
		}
		w.paragraph("  "+pad(f.State.String(), -9), text)
		if f.Do != "" {
			w.paragraph("           ", "to do: "+f.Do)
		}
	}
}
