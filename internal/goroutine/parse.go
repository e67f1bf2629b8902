package goroutine

import "runtime"

// parsed returns the number of the goroutine in "goroutine 12 [running]:", which a stack trace begins with. It takes a
// microsecond, where id takes a nanosecond.
func parsed() uintptr {
	var text [32]byte
	var n uintptr
	for _, c := range text[len("goroutine "):runtime.Stack(text[:], false)] {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + uintptr(c-'0')
	}
	return n
}
