// Package try lets the mathematics of an example be written without an if statement after each operation: errors are
// panics inside, and Catch converts them to the error of the function that the caller sees.
package try

// A failure is the panic of an error from Of or Check.
type failure struct{ error }

// Of returns v, or panics if err is not nil.
func Of[T any](v T, err error) T {
	Check(err)
	return v
}

// Check panics if err is not nil.
func Check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Catch, when deferred, sets *err to the error with which Of or Check panicked. Other panics continue.
func Catch(err *error) {
	switch v := recover().(type) {
	case nil:
	case failure:
		*err = v.error
	default:
		panic(v)
	}
}
