package golden

import (
	"fmt"
	"strings"
)

// diff shows how got differs from want, or returns "" if it does not: the lines between the equal beginning and the
// equal end, with two equal lines around them.
func diff(want, got string) string {
	if want == got {
		return ""
	}
	w, g := strings.SplitAfter(want, "\n"), strings.SplitAfter(got, "\n")
	start := 0
	for start < len(w) && start < len(g) && w[start] == g[start] {
		start++
	}
	end := 0
	for end < len(w)-start && end < len(g)-start && w[len(w)-1-end] == g[len(g)-1-end] {
		end++
	}
	const context = 2
	var b strings.Builder
	show := func(prefix string, lines []string) {
		for _, line := range lines {
			if line != "" {
				b.WriteString(prefix + strings.TrimSuffix(line, "\n") + "\n")
			}
		}
	}
	fmt.Fprintf(&b, "line %d of the output, - wanted, + got:\n", start+1)
	show("  ", w[max(0, start-context):start])
	show("- ", w[start:len(w)-end])
	show("+ ", g[start:len(g)-end])
	show("  ", w[len(w)-end:min(len(w), len(w)-end+context)])
	if strings.TrimSuffix(want, "\n") == strings.TrimSuffix(got, "\n") {
		b.WriteString("(only the newline at the end differs)\n")
	}
	return b.String()
}
