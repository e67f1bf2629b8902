//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// An entry is a kernel as its PTX declares it.
type entry struct {
	name    string
	params  []param
	shared  int32 // bytes of static shared memory
	threads int32 // of a block, at most
}

type param struct {
	offset, size int64
}

var (
	ptxComment = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/`)
	ptxVersion = regexp.MustCompile(`(?m)^\s*\.version\s+\d+\.\d+`)
	ptxTarget  = regexp.MustCompile(`(?m)^\s*\.target\s+sm_(\d+)`)
	ptxEntry   = regexp.MustCompile(`\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?([^{]*)\{`)
	ptxParam   = regexp.MustCompile(`\.param\s+(?:\.align\s+(\d+)\s+)?\.([bfsu])(\d+)\s+(?:\.ptr[^,)]*?\s)?[\w$]+(?:\[(\d+)\])?`)
	ptxShared  = regexp.MustCompile(`\.shared\s+(?:\.align\s+\d+\s+)?\.[bfsu](\d+)\s+[\w$]+(?:\[(\d+)\])?`)
	ptxThreads = regexp.MustCompile(`\.(?:maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?`)
)

// readPTX finds the entries of a text. Inside an entry it only adds up static shared memory and counts braces.
func readPTX(text string, compute int) (map[string]entry, error) {
	text = ptxComment.ReplaceAllString(text, "")
	if !ptxVersion.MatchString(text) {
		return nil, errors.New("Missing .version directive at start of file")
	}
	target := ptxTarget.FindStringSubmatch(text)
	if target == nil {
		return nil, errors.New("Missing .target directive")
	}
	if number(target[1]) > compute {
		return nil, fmt.Errorf("SM version specified by .target is higher than default SM version assumed: sm_%s",
			target[1])
	}
	entries := map[string]entry{}
	for _, at := range ptxEntry.FindAllStringSubmatchIndex(text, -1) {
		group := func(i int) string {
			if at[2*i] < 0 {
				return ""
			}
			return text[at[2*i]:at[2*i+1]]
		}
		body, ok := braced(text[at[1]:])
		if !ok {
			return nil, fmt.Errorf("Parsing error near '%s': syntax error", group(1))
		}
		e := entry{name: group(1), threads: 1024}
		if t := ptxThreads.FindStringSubmatch(group(3)); t != nil {
			e.threads = int32(number(t[1]) * max(1, number(t[2])) * max(1, number(t[3])))
		}
		for _, s := range ptxShared.FindAllStringSubmatch(body, -1) {
			e.shared += int32(number(s[1]) / 8 * max(1, number(s[2])))
		}
		offset := int64(0)
		for _, p := range ptxParam.FindAllStringSubmatch(group(2), -1) {
			element := int64(number(p[3]) / 8)
			offset = roundUp(offset, max(element, int64(number(p[1]))))
			size := element * max(1, int64(number(p[4])))
			e.params = append(e.params, param{offset, size})
			offset += size
		}
		if n := strings.Count(group(2), ".param"); n != len(e.params) {
			return nil, fmt.Errorf("Parsing error near '%s': %d parameters, %d understood", e.name, n, len(e.params))
		}
		entries[e.name] = e
	}
	return entries, nil
}

// braced returns the text up to its closing brace.
func braced(text string) (string, bool) {
	depth := 1
	for i, r := range text {
		switch r {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[:i], true
			}
		}
	}
	return "", false
}

// number returns a decimal number that an expression matched, or 0 for none.
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
