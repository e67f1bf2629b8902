package main

import (
	"go/ast"
	"go/token"
	"strings"
	"unicode"
)

// isText reports whether a call only makes a text or joins errors. Users read the text and call errors.Is; they do not
// rely on the order.
func (c *collector) isText(e *ast.CallExpr) bool {
	if f, ok := e.Fun.(*ast.SelectorExpr); ok {
		if of := name(f.X); of == "fmt" || of == "errors" {
			return true
		}
	}
	for _, arg := range e.Args {
		format := arg
		for concatenated, ok := format.(*ast.BinaryExpr); ok; concatenated, ok = format.(*ast.BinaryExpr) {
			format = concatenated.X
		}
		if l, ok := format.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.Contains(c.source(arg), "%") {
			return true // it formats the arguments behind it
		}
	}
	return false
}

// isCapacity reports whether n is the capacity in a call of make, or of a map. More or less of it changes no result.
func isCapacity(n ast.Node, around []ast.Node) bool {
	if len(around) == 0 {
		return false
	}
	e, ok := around[len(around)-1].(*ast.CallExpr)
	if !ok || name(e.Fun) != "make" || len(e.Args) < 2 || n != e.Args[len(e.Args)-1] {
		return false
	}
	_, ofMap := e.Args[0].(*ast.MapType)
	return ofMap || len(e.Args) == 3
}

// besideError reports whether a value, in these nodes, is returned together with an error that is certainly not nil.
// Callers do not use it then, as everywhere in Go.
func besideError(around []ast.Node) bool {
	last := len(around) - 1
	if last < 0 {
		return false
	}
	r, ok := around[last].(*ast.ReturnStmt)
	if !ok || len(r.Results) < 2 {
		return false
	}
	result := r.Results[len(r.Results)-1]
	if isError(result) {
		return true
	}
	for i := last; i > 0; i-- {
		switch n := around[i-1].(type) {
		case *ast.FuncLit:
			return false
		case *ast.IfStmt:
			if id, ok := result.(*ast.Ident); ok && n.Body == around[i] && id.Name == notNil(n.Cond) {
				return true
			}
		}
	}
	return false
}

// isError reports whether an expression is an error by its form: a sentinel, or the result of a function that makes
// errors.
func isError(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok {
		f, _ := call.Fun.(*ast.SelectorExpr)
		return strings.HasSuffix(name(call.Fun), "Error") ||
			f != nil && (name(f.X) == "fmt" && f.Sel.Name == "Errorf" || name(f.X) == "errors" && f.Sel.Name == "New")
	}
	sentinel := name(e)
	return strings.HasPrefix(sentinel, "Err") ||
		strings.HasPrefix(sentinel, "err") && len(sentinel) > 4 && unicode.IsUpper(rune(sentinel[3]))
}

// notNil returns the name of the error that a condition says is not nil, or "".
func notNil(cond ast.Expr) string {
	e, ok := cond.(*ast.BinaryExpr)
	switch {
	case !ok:
		return ""
	case e.Op == token.LAND:
		if x := notNil(e.X); x != "" {
			return x
		}
		return notNil(e.Y)
	case e.Op == token.NEQ && name(e.Y) == "nil" && strings.HasPrefix(name(e.X), "err"):
		return name(e.X)
	}
	return ""
}

// name returns the last name of an expression that is one, or "".
func name(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
