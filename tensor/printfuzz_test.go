package tensor

import (
	"flag"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

var printSeed = flag.Uint64("printseed", 0, "seed of the random tests of printing; 0 takes a fresh one")

// printRandom returns random numbers and describes their source.
func printRandom(t *testing.T) *rand.Rand {
	return rand.New(rand.NewPCG(testkit.SeedFlag(t, "printseed", *printSeed), 1))
}

// Any bits in any shape can be printed with any options; if the options print all digits and the output is not
// shortened, every number reads back.
func TestPrintAnything(t *testing.T) {
	rng := printRandom(t)
	p := printHost(t)
	for range 1500 {
		d := dtype.All()[rng.IntN(len(dtype.All()))]
		shape := make([]int, rng.IntN(6))
		strides := make([]int, len(shape))
		for i := range shape {
			shape[i], strides[i] = rng.IntN(6), rng.IntN(15)-7
			if rng.IntN(4) > 0 {
				shape[i]++
			}
			if rng.IntN(20) == 0 {
				shape[i] += rng.IntN(40)
			}
		}
		lowest, highest, _ := span(0, shape, strides)
		if highest < lowest {
			lowest, highest = 0, 0
		}
		data := make([]byte, (highest-lowest+1)*d.Size())
		for i := range data {
			data[i] = byte(rng.Uint32())
			if d == dtype.Bool {
				data[i] &= 1
			}
		}
		v := printOver(t, p, data, d, -lowest, shape, strides)
		o := PrintOptions{
			Style: Style(rng.IntN(2)), Precision: rng.IntN(20) - 1, Threshold: rng.IntN(200), EdgeItems: rng.IntN(5) - 1,
			LineWidth: rng.IntN(100) - 5, SciMode: SciMode(rng.IntN(3)),
		}
		if rng.IntN(2) == 0 {
			o.Precision, o.Threshold = -1, math.MaxInt
			if rng.IntN(2) == 0 {
				o.EdgeItems = math.MaxInt
			}
		}
		s, err := v.Text(o)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(s, "[") != strings.Count(s, "]") || strings.Count(s, "(") != strings.Count(s, ")") {
			t.Fatalf("%v with %+v:\n%s", v.Brief(), o, s)
		}
		if v.Len() > 0 && o.Precision < 0 && o.Threshold > v.Len() {
			readBack(t, v, s, o)
		}
		v.Release()
	}
}

// readBack finds every number of t in the text.
func readBack(t *testing.T, v *Tensor, s string, o PrintOptions) {
	t.Helper()
	e, err := v.excerpt(math.MaxInt, 1)
	if err != nil {
		t.Fatal(err)
	}
	text := s[strings.IndexByte(s, '(')+1:]
	for _, note := range []string{"dtype=", "device="} {
		text, _, _ = strings.Cut(text, note)
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("[](), \n", r) })
	if len(words) != e.count() && !v.dtype.IsComplex() { // the parts of a complex number may have blanks between them
		t.Fatalf("%v with %+v: %d words for %d elements:\n%s", v.Brief(), o, len(words), e.count(), s)
	}
	if v.dtype.IsComplex() {
		words = complexWords(text)
	}
	if len(words)%e.count() != 0 {
		t.Fatalf("%v with %+v: %d parts for %d elements:\n%s", v.Brief(), o, len(words), e.count(), s)
	}
	re, im := e.floats()
	for i, word := range words {
		want := e.element(i % e.count())
		if !v.dtype.IsFloat() && !v.dtype.IsComplex() {
			if got := strings.ToLower(word); got != want.String() {
				t.Fatalf("%v with %+v: %s, want %s", v.Brief(), o, got, want)
			}
			continue
		}
		x := re[i%e.count()]
		if v.dtype.IsComplex() {
			x = [][]float64{re, im}[i%2][i/2]
		}
		y, err := strconv.ParseFloat(strings.TrimPrefix(word, "+"), 64)
		if err != nil {
			t.Fatalf("%v with %+v: %v in\n%s", v.Brief(), o, err, s)
		}
		if math.IsNaN(x) != math.IsNaN(y) || !math.IsNaN(x) && !finite(x) && x != y ||
			finite(x) && !identifies(strings.TrimSuffix(word, "."), x, e.component()) {
			t.Fatalf("%v with %+v: element %d is %v, printed as %s", v.Brief(), o, i, x, word)
		}
	}
}

// complexWords takes the real and the imaginary parts of a text apart.
func complexWords(text string) []string {
	var words []string
	for _, word := range strings.Split(strings.Map(func(r rune) rune {
		if strings.ContainsRune("[](), \n", r) {
			return -1
		}
		return r
	}, text), "j") {
		if word == "" {
			continue
		}
		at := strings.LastIndexAny(word, "+-")
		if at > 0 && word[at-1] == 'e' {
			at = strings.LastIndexAny(word[:at], "+-")
		}
		words = append(words, word[:at], word[at:])
	}
	return words
}

func FuzzPrint(f *testing.F) {
	f.Add(uint8(11), []byte{1, 2, 3, 4, 5, 6, 7, 8}, 2, 1, 0, 0, 4)
	f.Add(uint8(15), make([]byte, 64), 2, 2, 1, -1, 8)
	f.Add(uint8(10), []byte{0xff, 0x7b, 0, 0x7c, 1, 0xfe}, 3, 1, 1, 1, -1)
	p := printHost(f)
	f.Fuzz(func(t *testing.T, kind uint8, data []byte, rows, columns, down, right, precision int) {
		d := dtype.All()[int(kind)%len(dtype.All())]
		if d == dtype.Bool {
			for i := range data {
				data[i] &= 1
			}
		}
		s, err := FromBytes(p, data, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Release()
		v, err := FromStorage(p, s, d, 0, []int{rows, columns}, []int{down, right})
		if err != nil {
			return // the elements do not lie in the data
		}
		defer v.Release()
		for _, o := range []PrintOptions{PyTorchStyle.Options(), NumPyStyle.Options()} {
			o.Precision = min(precision, 400)
			if _, err := v.Text(o); err != nil {
				t.Fatal(err)
			}
		}
	})
}
