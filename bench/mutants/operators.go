package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// other is the operator that each one is mistaken for.
var other = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.QUO,
	token.SHL: token.SHR, token.SHR: token.SHL, token.AND: token.OR, token.OR: token.AND, token.AND_NOT: token.AND,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.OR_ASSIGN: token.AND_ASSIGN, token.AND_ASSIGN: token.OR_ASSIGN,
	token.INC: token.DEC, token.DEC: token.INC,
}

// names are the identifiers that are mistaken for each other.
var names = map[string]string{"min": "max", "max": "min", "true": "false", "false": "true"}

// node adds the faults of one node, which lies within these, the smallest last.
func (c *collector) node(n ast.Node, around []ast.Node) {
	switch n := n.(type) {
	case *ast.IfStmt:
		c.negate(n.Cond)
	case *ast.CaseClause:
		for _, cond := range n.List {
			if _, ok := cond.(*ast.BinaryExpr); ok {
				c.negate(cond)
			}
		}
	case *ast.BinaryExpr:
		c.binary(n)
	case *ast.BasicLit:
		c.constant(n, around)
	case *ast.Ident:
		if to := names[n.Name]; to != "" && !besideError(around) {
			c.edit(whole(around), n.Pos(), n.End(), to)
		}
	case *ast.CallExpr:
		c.call(n)
	case *ast.BlockStmt:
		c.delete(n.List)
	case *ast.IncDecStmt:
		c.edit(n, n.TokPos, n.End(), other[n.Tok].String())
	case *ast.AssignStmt:
		if to, ok := other[n.Tok]; ok {
			c.edit(n, n.TokPos, n.TokPos+token.Pos(len(n.Tok.String())), to.String())
		}
	case *ast.ReturnStmt:
		c.results(n)
	}
}

// negate inverts a condition that has no operator of its own to mistake.
func (c *collector) negate(cond ast.Expr) {
	switch e := cond.(type) {
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			c.replace(cond, c.source(e.X))
		}
	default:
		c.replace(cond, "!("+c.source(cond)+")")
	}
}

// binary mistakes the operator, and leaves out one side of a condition.
func (c *collector) binary(e *ast.BinaryExpr) {
	if to, ok := other[e.Op]; ok {
		c.edit(e, e.OpPos, e.OpPos+token.Pos(len(e.Op.String())), to.String())
	}
	if e.Op == token.LAND || e.Op == token.LOR {
		c.replace(e, c.source(e.X))
		c.replace(e, c.source(e.Y))
	}
}

// constant makes a whole number larger by one.
func (c *collector) constant(l *ast.BasicLit, around []ast.Node) {
	if l.Kind != token.INT || besideError(around) {
		return
	}
	if n, err := strconv.ParseInt(l.Value, 0, 64); err == nil {
		c.edit(whole(around), l.Pos(), l.End(), fmt.Sprint(n+1))
	}
}

// whole returns the smallest node that tells what a word of it means.
func whole(around []ast.Node) ast.Node {
	for i := len(around) - 1; i > 0; i-- {
		switch around[i].(type) {
		case *ast.ParenExpr, *ast.UnaryExpr, *ast.CallExpr, *ast.CompositeLit, *ast.KeyValueExpr, *ast.Ellipsis:
		default:
			return around[i]
		}
	}
	return around[0]
}

// call swaps neighbouring arguments, but not those of texts, which no user relies on.
func (c *collector) call(e *ast.CallExpr) {
	if names[name(e.Fun)] != "" || c.isText(e) {
		return // the order does not matter
	}
	for i := 1; i < len(e.Args); i++ {
		x, y := e.Args[i-1], e.Args[i]
		between := string(c.src[c.offset(x.End()):c.offset(y.Pos())])
		c.edit(e, x.Pos(), y.End(), c.source(y)+between+c.source(x))
	}
}

// delete leaves out statements that other code can do without.
func (c *collector) delete(statements []ast.Stmt) {
	for _, s := range statements {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if text := c.source(s); !strings.HasSuffix(text, ".verify()") && !strings.HasSuffix(text, ".checkInvariants()") {
				c.replace(s, "")
			}
		case *ast.IncDecStmt, *ast.DeferStmt, *ast.SendStmt, *ast.BranchStmt:
			c.replace(s, "")
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				c.replace(s, "")
			}
		case *ast.IfStmt:
			if s.Else == nil && s.Init == nil {
				c.replace(s, "")
			}
		}
	}
}

// results loses an error.
func (c *collector) results(r *ast.ReturnStmt) {
	if n := len(r.Results); n > 0 {
		if id, ok := r.Results[n-1].(*ast.Ident); ok && id.Name == "err" {
			c.edit(r, id.Pos(), id.End(), "nil")
		}
	}
}
