// Line charts of a few thousand points: the curves of what-if, and the recordings of a job.

import { axes, clipped, marks, plate, steps } from 'ashlar/axes.js'
import { el } from 'ashlar/dom.js'
import { bytes, count } from 'ashlar/format.js'
import { Plot } from 'ashlar/plot.js'
import { theme } from 'ashlar/palette.js'

// A Chart draws curves in a viewport that it may share with others, whose cursors it follows. A curve is {name, x, y,
// dash} with one value from each x to the next.
export class Chart {
  constructor(parent, viewport, { name, curves, axis, shared, onpick, levels = [] }) {
    this.curves = curves
    this.levels = levels
    this.axis = axis
    this.shared = shared
    this.plot = new Plot(parent, viewport, { name: name || 'memory over the events', painter: this, small: true })
    if (name) this.plot.element.append(el('span', { class: 'name' }, name))
    shared.charts.push(this)
    const canvas = this.plot.canvas
    canvas.addEventListener('pointermove', (e) => shared.move(this.plot.point(this.plot.place(e)).x))
    canvas.addEventListener('pointerleave', () => shared.move(undefined))
    if (onpick) canvas.addEventListener('pick', (e) => onpick(this.plot.point(e.detail).x))
  }

  close() {
    this.plot.close()
  }

  paint(c, plot) {
    axes(c, plot, this.axis)
    clipped(c, plot.box, () => {
      for (const { x, y, dash } of this.curves) steps(c, plot, x, y, theme('--text'), dash)
    })
    for (const { value, name } of this.levels) {
      const y = plot.toY(value)
      if (y > plot.box.y && y < plot.box.y + plot.box.height)
        plate(c, name, plot.box.x + plot.box.width - 4, y - 9, 'right')
    }
    const at = this.shared.at
    if (at === undefined) return
    marks(c, plot, [{ x: at, kind: 'cursor' }])
    const left = plot.toX(at) > plot.box.x + plot.box.width / 2
    const texts = [
      `at ${this.axis} ${count(at)}`,
      ...this.curves.map((curve) => `${curve.name} ${bytes(valueAt(curve, at))}`),
    ]
    texts.forEach((text, i) => {
      plate(c, text, plot.toX(at) + (left ? -8 : 8), plot.box.y + 26 + 17 * i, left ? 'right' : 'left')
    })
  }
}

// A Shared links the cursors of charts.
export class Shared {
  constructor() {
    this.charts = []
  }

  move(at) {
    this.at = at
    for (const chart of this.charts) chart.plot.draw()
  }
}

// valueAt returns the value of a curve at a point.
export function valueAt(curve, at) {
  let lo = 0
  let hi = curve.y.length
  while (lo + 1 < hi) {
    const middle = (lo + hi) >> 1
    if (curve.x[middle] <= at) lo = middle
    else hi = middle
  }
  return curve.y[lo] ?? 0
}
