package host

// Products with a vector: every element of the matrix is used once, so nothing is packed, and the speed is that of
// memory. Where the rows of the matrix are contiguous (or neither rows nor columns are) each is multiplied with the
// vector; where the columns are, four at a time are added to the result.
//
// Rows and columns are cut into pieces whose sums are added up in the end: that occupies the processors, keeps errors
// small, and does not depend on how many processors there are.

const (
	pieceOfRow  = 1 << 15 // elements of a row that are one piece
	readOfRow   = 2048    // of which are read at once
	pieceOfCols = 1024    // rows in a piece of columns
	colsOfPiece = 256     // and columns in it
	taskOfRows  = 1 << 15 // elements that are worth a task
)

// vector computes a product of which c has one column.
func (g *product[T]) vector() {
	m, k := g.a.rows, g.a.cols
	x := takeScratch[T](k)
	defer x.free()
	g.b.gather(x.of, g.b.index(0, 0), g.b.rs)
	width, sums := pieceOfRow, g.rowPieces
	if g.a.rs == 1 && g.a.cs != 1 {
		width, sums = colsOfPiece, g.columnPieces
	}
	pieces := count(k, width)
	y := takeScratch[T](m * pieces) // all rows of the first piece, then those of the second
	defer y.free()
	sums(y.of, x.of)
	for p := 1; p < pieces; p++ {
		for i, v := range y.of[p*m:][:m] {
			y.of[i] += v
		}
	}
	g.c.write(g.c.index(0, 0), g.c.rs, y.of[:m])
}

func (g *product[T]) rowPieces(y, x []T) {
	m, k := g.a.rows, g.a.cols
	pieces := count(k, pieceOfRow)
	each := max(1, taskOfRows/min(k, pieceOfRow))
	g.spread(stage{count(m*pieces, each), func(task int) {
		temp := takeScratch[T](readOfRow)
		defer temp.free()
		for t := task * each; t < min((task+1)*each, m*pieces); t++ {
			i, p := t%m, t/m*pieceOfRow
			var sum T
			for end := min(p+pieceOfRow, k); p < end; p += readOfRow {
				n := min(readOfRow, end-p)
				row := temp.of[:n]
				if g.a.cs == 1 {
					row = g.a.read(g.a.index(i, p), row)
				} else {
					g.a.gather(row, g.a.index(i, p), g.a.cs)
				}
				sum += g.dot(row, x[p:p+n])
			}
			y[t] = sum
		}
	}})
}

func (g *product[T]) columnPieces(y, x []T) {
	m, k := g.a.rows, g.a.cols
	down := count(m, pieceOfCols)
	g.spread(stage{down * count(k, colsOfPiece), func(t int) {
		temp := takeScratch[T](4 * pieceOfCols)
		defer temp.free()
		i, p := t%down*pieceOfCols, t/down*colsOfPiece
		n := min(pieceOfCols, m-i)
		to := y[t/down*m+i:][:n]
		clear(to)
		var rows [4][]T
		column := func(p, r int) []T { return g.a.read(g.a.index(i, p), temp.of[r*pieceOfCols:][:n]) }
		end := min(p+colsOfPiece, k)
		for ; p+4 <= end; p += 4 {
			for r := range rows {
				rows[r] = column(p+r, r)
			}
			g.axpy(to, &rows, (*[4]T)(x[p:]))
		}
		for ; p < end; p++ {
			for j, v := range column(p, 0) {
				to[j] += v * x[p]
			}
		}
	}})
}

// tiny computes a product of few elements, each by itself.
func (g *product[T]) tiny() {
	m, n, k := g.c.rows, g.c.cols, g.a.cols
	held := takeScratch[T]((n+1)*k + n)
	defer held.free()
	columns, row, out := held.of[:n*k], held.of[n*k:][:k], held.of[(n+1)*k:][:n]
	for j := range n {
		g.b.gather(columns[j*k:][:k], g.b.index(0, j), g.b.rs)
	}
	for i := range m {
		g.a.gather(row, g.a.index(i, 0), g.a.cs)
		for j := range out {
			out[j] = g.dot(row, columns[j*k:][:k])
		}
		g.c.write(g.c.index(i, 0), g.c.cs, out)
	}
}
