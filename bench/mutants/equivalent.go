package main

import (
	_ "embed"
	"fmt"
	"strings"
)

// The file has the key of a fault on one line, and on the next, after a tab, the reason why no test can find it.
//
//go:embed equivalent.txt
var equivalentText string

// readEquivalents returns the reasons by key.
func readEquivalents() (map[string]string, error) {
	reasons := map[string]string{}
	key := ""
	for i, line := range strings.Split(equivalentText, "\n") {
		reason, indented := strings.CutPrefix(line, "\t")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case indented && key != "":
			reasons[key], key = reason, ""
		case indented || key != "":
			return nil, fmt.Errorf("line %d of equivalent.txt: want a fault, then its reason after a tab", i+1)
		case reasons[line] != "":
			return nil, fmt.Errorf("line %d of equivalent.txt: the fault has a reason already", i+1)
		default:
			key = line
		}
	}
	return reasons, nil
}
