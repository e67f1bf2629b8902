package pickle_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/pickle"
)

// A Writer writes plain data; Read reads it, as Python's pickle.load would.
func Example() {
	var file bytes.Buffer
	w := pickle.NewWriter(&file)
	w.Value(map[string]any{"name": "block", "sizes": []any{int64(512), int64(1024)}})
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	doc, err := pickle.Read(&file, pickle.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(doc.Plain(doc.Root()))
	// Output: map[name:block sizes:[512 1024]]
}
