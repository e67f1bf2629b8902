package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// pythonCommands are the commands that the ashlar of the Python package has beside those of this program.
var pythonCommands = []string{"run", "bench torch"}

// usageText is the message of wrong usage. It says what the parser says in the words of the help.
func usageText(err error, args []string) string {
	text := cleanLines(err.Error())
	var parsing *kong.ParseError
	if !errors.As(err, &parsing) {
		return text
	}
	for _, name := range pythonCommands {
		if words := strings.Fields(name); len(args) >= len(words) && slices.Equal(args[:len(words)], words) {
			return name + " is a command of the Python package: see docs/pytorch.md"
		}
	}
	if rest, unexpected := strings.CutPrefix(text, "unexpected argument "); unexpected && parsing.Context.Selected() == nil {
		name, suggestion, _ := strings.Cut(rest, ", did you mean ")
		if suggestion != "" {
			suggestion = ", did you mean " + suggestion
		}
		return `there is no command "` + name + `"` + suggestion
	}
	for _, w := range wordings {
		if match := w.parser.FindStringSubmatchIndex(text); match != nil {
			return string(w.parser.ExpandString(nil, w.text, text, match))
		}
	}
	if name, rest, isEnum := strings.Cut(text, " must be one of "); isEnum {
		choices, value, _ := strings.Cut(rest, " but got ")
		choices = strings.ReplaceAll(strings.TrimPrefix(choices, `"",`), ",", ", ")
		return name + " " + value + ": want one of " + strings.ReplaceAll(choices, `"`, "")
	}
	return text
}

// wordings replace messages of the parser. The first that matches counts.
var wordings = []struct {
	parser *regexp.Regexp
	text   string
}{
	{
		regexp.MustCompile(`^(--[\w-]+): expected .* but got "(-.*)" \((short|long) flag\)`),
		"$1: a value is missing, and $2 looks like a flag: $1=$2 passes it",
	},
	{regexp.MustCompile(`^(--[\w-]+): (missing value|.*<EOL>)`), "$1: a value is missing"},
	{regexp.MustCompile(`^expected "<([\w-]+)>`), "the argument <$1> is missing"},
	{
		regexp.MustCompile(`^(--[\w-]+): expected a valid 16 bit uint but got (".*")`),
		"$1 $2: want a whole number from 0 to 65535",
	},
	{regexp.MustCompile(`^(--[\w-]+): expected a valid 64 bit uint but got (".*")`), "$1 $2: want a whole number from 0"},
	{regexp.MustCompile(`^(--[\w-]+): expected a valid 64 bit int but got (".*")`), "$1 $2: want a whole number"},
	{regexp.MustCompile(`^(--[\w-]+): expected a float but got (".*") \(`), "$1 $2: want a number"},
	{
		regexp.MustCompile(`^(--[\w-]+): expected duration but got ("[^"]*"): `),
		"$1 $2: want a duration, such as 500ms, 30s or 1m",
	},
}
