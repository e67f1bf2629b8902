package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/ashlar-go/ashlar/replay"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help implements kong.HelpProvider.
func (*completionCmd) Help() string {
	return `Prints a script that completes the commands, flags and values of ashlar. The examples show where shells look for it.

Examples:

    ashlar completion bash > /etc/bash_completion.d/ashlar
    ashlar completion zsh > "${fpath[1]}/_ashlar"
    ashlar completion fish > ~/.config/fish/completions/ashlar.fish`
}

// Run implements the command.
func (c *completionCmd) Run(s *streams, parser *kong.Kong) error {
	var b strings.Builder
	switch c.Shell {
	case "bash":
		bashCompletion(&b, parser.Model)
	case "zsh":
		zshCompletion(&b, parser.Model)
	case "fish":
		fishCompletion(&b, parser.Model)
	}
	_, err := io.WriteString(s.out, b.String())
	return err
}

// commandNames returns the names of the subcommands.
func commandNames(app *kong.Application) string {
	var names []string
	for _, c := range app.Children {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

// flagNames returns the flags of a command as a user types them.
func flagNames(c *kong.Node) string {
	names := []string{"--help", "-h"}
	for _, f := range c.Flags {
		names = append(names, "--"+f.Name)
		if f.Short != 0 {
			names = append(names, "-"+string(f.Short))
		}
	}
	return strings.Join(names, " ")
}

// choices returns the possible values, or beginnings of values; "" if any value is possible.
func choices(v *kong.Value) string {
	switch {
	case v.Name == "allocator":
		return strings.Join(replay.Allocators(), " ")
	case v.Name == "device":
		return "sim host cuda:0"
	case v.Name == "driver":
		return "cuda host sim"
	case v.Enum == "":
		return ""
	}
	return strings.Join(v.EnumSlice(), " ")
}

// takesFile reports whether the value of a flag is the name of a file.
func takesFile(f *kong.Flag) bool { return f.PlaceHolder == "FILE" || f.PlaceHolder == "PLAN" }

// words returns the possible arguments of a command that are not files, or "".
func words(c *kong.Node) string {
	for _, p := range c.Positional {
		if c := choices(p); c != "" {
			return c
		}
	}
	return ""
}

func bashCompletion(b *strings.Builder, app *kong.Application) {
	fmt.Fprintf(b, `_ashlar() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} before= words= flags=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "%s help --help -h --version" -- "$cur"))
        return
    fi
    # --flag=value is one word or three.
    if [ "$cur" = = ]; then
        cur=
    elif [ "$prev" = = ]; then
        prev=${COMP_WORDS[COMP_CWORD-2]}
    elif [[ $cur == --*=* ]]; then
        prev=${cur%%%%=*} before=${cur%%%%=*}= cur=${cur#*=}
    fi
    case ${COMP_WORDS[1]} in
`, commandNames(app))
	for _, c := range app.Children {
		fmt.Fprintf(b, "    %s)\n        flags=%q words=%q\n", c.Name, flagNames(c), words(c))
		for _, f := range c.Flags {
			if choices(f.Value) == "" {
				continue
			}
			test := fmt.Sprintf("[ \"$prev\" = --%s ]", f.Name)
			if f.Short != 0 {
				test += fmt.Sprintf(" || [ \"$prev\" = -%c ]", f.Short)
			}
			fmt.Fprintf(b, "        if %s; then words=%q; fi\n", test, choices(f.Value))
		}
		b.WriteString("        ;;\n")
	}
	b.WriteString(`    esac
    case $cur in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$cur")) ;;
    *) if [ -n "$words" ]; then COMPREPLY=($(compgen -P "$before" -W "$words" -- "$cur")); fi ;;
    esac
}
complete -o default -F _ashlar ashlar
`)
}

// zshQuote quotes text for the brackets of a zsh specification.
func zshQuote(text string) string {
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`, "'", `'\''`).Replace(text)
}

func zshCompletion(b *strings.Builder, app *kong.Application) {
	b.WriteString("#compdef ashlar\n\n_ashlar() {\n    if ((CURRENT == 2)); then\n        local -a commands=(\n")
	for _, c := range app.Children {
		fmt.Fprintf(b, "            '%s:%s'\n", c.Name, zshQuote(c.Help))
	}
	b.WriteString("        )\n        _describe command commands\n        return\n    fi\n    local command=$words[2]\n" +
		"    shift words\n    ((CURRENT--))\n    case $command in\n")
	for _, c := range app.Children {
		fmt.Fprintf(b, "    %s)\n        _arguments '(-h --help)'{-h,--help}'[%s]'", c.Name, zshQuote("Show help."))
		for _, f := range c.Flags {
			repeat, value := "", ":value: "
			if f.IsSlice() {
				repeat = "*"
			}
			switch {
			case choices(f.Value) != "":
				value = ":value:(" + choices(f.Value) + ")"
			case takesFile(f):
				value = ":file:_files"
			case f.IsBool():
				value = ""
			}
			fmt.Fprintf(b, " \\\n            '%s--%s[%s]%s'", repeat, f.Name, zshQuote(f.Help), value)
			if f.Short != 0 {
				fmt.Fprintf(b, " \\\n            '%s-%c[%s]%s'", repeat, f.Short, zshQuote(f.Help), value)
			}
		}
		if w := words(c); w != "" {
			fmt.Fprintf(b, " \\\n            '1:value:(%s)'", w)
		} else if len(c.Positional) > 0 {
			b.WriteString(" \\\n            '*:file:_files'")
		}
		b.WriteString("\n        ;;\n")
	}
	b.WriteString("    esac\n}\n\n_ashlar \"$@\"\n")
}

// fishQuote quotes text for fish.
func fishQuote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}

func fishCompletion(b *strings.Builder, app *kong.Application) {
	fmt.Fprintln(b, "complete -c ashlar -s h -l help -d 'Show help.'")
	for _, c := range app.Children {
		fmt.Fprintf(b, "complete -c ashlar -n __fish_use_subcommand -f -a %s -d %s\n", c.Name, fishQuote(c.Help))
	}
	for _, c := range app.Children {
		in := fmt.Sprintf("complete -c ashlar -n '__fish_seen_subcommand_from %s'", c.Name)
		for _, f := range c.Flags {
			fmt.Fprintf(b, "%s -l %s", in, f.Name)
			if f.Short != 0 {
				fmt.Fprintf(b, " -s %c", f.Short)
			}
			switch {
			case choices(f.Value) != "":
				fmt.Fprintf(b, " -x -a %s", fishQuote(choices(f.Value)))
			case takesFile(f):
				b.WriteString(" -r -F")
			case !f.IsBool():
				b.WriteString(" -x")
			}
			fmt.Fprintf(b, " -d %s\n", fishQuote(f.Help))
		}
		if w := words(c); w != "" {
			fmt.Fprintf(b, "%s -f -a %s\n", in, fishQuote(w))
		}
	}
}
