package export

// SetMaxTexts changes the limit of texts and returns a function that restores it.
func SetMaxTexts(n int) (restore func()) {
	was := maxTexts
	maxTexts = n
	return func() { maxTexts = was }
}
