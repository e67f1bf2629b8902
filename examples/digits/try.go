package main

// A failure is an error on its way from try or check to the catch of a caller: mathematics reads better without an if after each
// operation.
type failure struct{ error }

// try returns v if there is no error.
func try[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// catch is deferred: it makes a failure the function's error.
func catch(err *error) {
	switch v := recover().(type) {
	case nil:
	case failure:
		*err = v.error
	default:
		panic(v)
	}
}
