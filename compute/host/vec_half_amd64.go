package host

//go:noescape
func widenF16(dst *float32, src *uint16, n int)

//go:noescape
func roundF16(dst *uint16, src *float32, n int)

//go:noescape
func widenBF16(dst *float32, src *uint16, n int)

//go:noescape
func roundBF16(dst *uint16, src *float32, n int)
