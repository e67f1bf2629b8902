package pinned

import "sync"

// touchStep is at most the page size of any host.
const touchStep = 4 << 10

// touch makes the system back every page with memory, by n goroutines. A driver that then locks the pages holds its
// lock for a shorter time.
func touch(pages []byte, n int) {
	size := len(pages)
	if size < touchStep*n {
		n = 1
	}
	piece := (size/n + touchStep - 1) &^ (touchStep - 1)
	var wg sync.WaitGroup
	for start := piece; start < size; start += piece {
		wg.Go(func() { touchEach(pages[start:min(start+piece, size)]) })
	}
	touchEach(pages[:min(piece, size)])
	wg.Wait()
}

func touchEach(pages []byte) {
	for i := 0; i < len(pages); i += touchStep {
		pages[i] = 0
	}
}
