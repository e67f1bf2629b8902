// What is above the rectangles of a picture over time.

import { none } from 'ashlar/data.js'
import { axes, clipped, level, marks, names, plate, steps } from 'ashlar/axes.js'
import { bytes } from 'ashlar/format.js'
import { css, textOn, theme } from 'ashlar/palette.js'
import { colourer } from 'ashlar/groups.js'

// How many rectangles get names, and how many of the largest are tried.
const mostNames = 120
const mostTried = 2500

// A Painter paints above one Timeline.
export class Painter {
  constructor(timeline) {
    this.timeline = timeline
  }

  paint(c, plot) {
    const t = this.timeline
    axes(c, plot, t.axis)
    const b = t.bands
    if (!b) return
    clipped(c, plot.box, () => {
      if (!plot.moving) names(c, plot.box, this.names(plot))
      if (t.kind.lines) this.lines(c, plot)
      this.selection(c, plot)
    })
    if (t.kind.lines) {
      const r = t.store.recording
      if (r.limit_known && r.limit > 0) level(c, plot, r.limit, `limit ${bytes(r.limit)}`, theme('--bad'))
    }
    marks(c, plot, this.marks())
    this.cursor(c, plot)
  }

  // lines draws reserved memory, dashed, and requested memory.
  lines(c, plot) {
    const t = this.timeline
    const b = t.bands
    const d = b.data
    const xs = new Float64Array(b.columns + 1)
    for (let i = 0; i <= b.columns; i++) xs[i] = b.toAxis(i)
    if (t.store.recording.reserved_known) steps(c, plot, xs, d.reserved, theme('--text'), [8, 4])
    steps(c, plot, xs, d.requested, theme('--text'))
    this.lineNames(c, plot)
    this.peak(c, plot)
  }

  // peak marks the highest point of requested memory.
  peak(c, plot) {
    const t = this.timeline
    if (t.store.filtered) return
    const { event, bytes: size } = t.store.recording.requested_peak
    const x = plot.toX(t.axisOf(event))
    const y = plot.toY(size)
    c.fillStyle = theme('--text')
    c.beginPath()
    c.arc(x, y, 4, 0, 7)
    c.fill()
    const left = x > plot.box.x + plot.box.width / 2
    plate(c, `peak ${bytes(size)}`, x + (left ? -9 : 9), y, left ? 'right' : 'left')
  }

  // lineNames names the two lines at the right.
  lineNames(c, plot) {
    const t = this.timeline
    const b = t.bands
    const column = b.columnAt(plot.viewport.x1 - (plot.viewport.x1 - plot.viewport.x0) * 0.01)
    const { box } = plot
    const peak = t.store.recording.requested_peak
    const peakX = plot.toX(t.axisOf(peak.event))
    const nearPeak = (y) => Math.abs(y - plot.toY(peak.bytes)) < 17 && peakX > box.x + box.width - 240
    const name = (text, at) => {
      const y = nearPeak(at) ? plot.toY(peak.bytes) - 18 : at
      if (y > box.y && y < box.y + box.height) plate(c, text, box.x + box.width - 6, Math.max(y, box.y + 10), 'right')
    }
    const requested = plot.toY(b.data.requested[column]) - 11
    name('requested', requested)
    if (!t.store.recording.reserved_known) return
    const reserved = plot.toY(b.data.reserved[column]) - 11
    name('reserved (dashed)', Math.abs(reserved - requested) < 17 ? requested - 18 : reserved)
  }

  // names returns the names of the largest blocks: their line and size.
  names(plot) {
    const t = this.timeline
    const b = t.bands
    const d = b.data
    const of = colourer(t.store.state.colour ?? 'category', d, t.store.recording, t.lines)
    const named = new Set()
    const out = []
    for (let j = 0; j < Math.min(b.order.length, mostTried) && out.length < mostNames; j++) {
      const i = b.order[j]
      const block = d.block[i]
      if (block === none || named.has(block)) continue
      const x0 = plot.toX(b.toAxis(d.x0[i]))
      const x1 = plot.toX(b.toAxis(d.x1[i]))
      const y0 = plot.toY(d.y[i] + d.h[i])
      const y1 = plot.toY(d.y[i])
      if (x1 - x0 < 48 || y1 - y0 < 15 || x1 < plot.box.x || x0 > plot.box.x + plot.box.width) continue
      named.add(block)
      out.push({ x0, x1, y0, y1, text: `${bytes(d.h[i])} ${this.label(i)}`, colour: textOn(of(i)) })
    }
    return out
  }

  // label returns the line of a rectangle, or its category if it has no stack.
  label(i) {
    const t = this.timeline
    const d = t.bands.data
    const line = t.lines[d.line[i]] ?? ''
    return line === '' || line.startsWith('(') ? (t.store.recording.categories[d.category[i]] ?? line) : line
  }

  // selection outlines the selected block and the one under the pointer.
  selection(c, plot) {
    const t = this.timeline
    for (const [block, width] of [
      [t.store.state.block, 2.5],
      [t.hover.block, 1.5],
    ]) {
      if (block === undefined || block === none) continue
      c.strokeStyle = theme('--text')
      c.lineWidth = width
      const d = t.bands.data
      for (const i of t.bands.of(block)) {
        const x0 = plot.toX(t.bands.toAxis(d.x0[i]))
        const x1 = plot.toX(t.bands.toAxis(d.x1[i]))
        const y = plot.toY(d.y[i] + d.h[i])
        c.strokeRect(x0, y, Math.max(1, x1 - x0), Math.max(1, plot.toY(d.y[i]) - y))
      }
    }
  }

  // marks returns failures and steps, the most important first.
  marks() {
    const t = this.timeline
    const r = t.store.recording
    const out = r.ooms.map((o, i) => ({
      x: t.axisOf(o.event),
      kind: 'oom',
      text: r.ooms.length > 1 ? `out of memory ${i + 1}` : 'out of memory',
    }))
    if (t.axis === 'event') {
      for (const s of r.steps?.list ?? []) out.push({ x: s.first, kind: 'step', text: `step ${s.number}` })
    }
    return out
  }

  cursor(c, plot) {
    const t = this.timeline
    if (t.store.state.event === undefined) return
    marks(c, plot, [{ x: t.axisOf(t.store.event), kind: 'cursor' }])
  }
}
