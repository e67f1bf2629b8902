// What is drawn above the rectangles of a plot: axes, lines, marks, labels.

import { bytes, count, ticks, time } from 'ashlar/format.js'
import { theme } from 'ashlar/palette.js'

export const font = '12px system-ui, "DejaVu Sans", sans-serif'

// axes draws the scales: sizes on the left; below, what axis says: events, time in microseconds, or percent.
export function axes(c, plot, axis) {
  const { box, viewport: v } = plot
  c.font = font
  c.fillStyle = theme('--text')
  c.strokeStyle = theme('--quiet')
  c.lineWidth = 1
  c.globalAlpha = 0.22
  const ys = ticks(v.y0, v.y1, Math.max(2, box.height / 55), true)
  const xs = ticks(v.x0, v.x1, Math.max(2, box.width / 120), false)
  c.beginPath()
  for (const y of ys) line(c, box.x, plot.toY(y), box.x + box.width, plot.toY(y))
  c.stroke()
  c.globalAlpha = 1
  c.textAlign = 'right'
  c.textBaseline = 'middle'
  for (const [y, text] of sizes(ys)) c.fillText(text, box.x - 6, plot.toY(y))
  c.textAlign = 'center'
  c.textBaseline = 'top'
  for (const x of xs) {
    const text = axis === 'time' ? time(x) : axis === 'percent' ? count(x) + ' %' : count(x)
    const half = c.measureText(text).width / 2
    const at = Math.min(Math.max(plot.toX(x), box.x + half - 20), box.x + box.width - half)
    c.fillText(text, at, box.y + box.height + 6)
  }
  c.textAlign = 'left'
  c.fillText(axis, 8, box.y + box.height + 6)
  c.strokeRect(box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1)
}

// sizes returns the texts of the ticks of sizes. If the ticks differ by too little to tell, all but the first are
// relative to it.
function sizes(ys) {
  const texts = ys.map((y) => [y, bytes(y)])
  const same = texts.some(([, text], i) => i > 0 && text === texts[i - 1][1])
  return same ? texts.map(([y, text], i) => [y, i === 0 ? text : '+' + bytes(y - ys[0])]) : texts
}

function line(c, x0, y0, x1, y1) {
  c.moveTo(x0, Math.round(y0) + 0.5)
  c.lineTo(x1, Math.round(y1) + 0.5)
}

// clipped calls f with drawing limited to the inside of the plot.
export function clipped(c, box, f) {
  c.save()
  c.beginPath()
  c.rect(box.x, box.y, box.width, box.height)
  c.clip()
  f()
  c.restore()
}

// steps draws a line that has one value in each column: xs has one more item than values. Its dash tells it from
// others in grey.
export function steps(c, plot, xs, values, colour, dash = [], width = 1.2) {
  if (values.length === 0) return
  c.beginPath()
  for (let i = 0; i < values.length; i++) {
    const y = plot.toY(values[i])
    c.lineTo(plot.toX(xs[i]), y)
    c.lineTo(plot.toX(xs[i + 1]), y)
  }
  c.lineWidth = width
  c.setLineDash(dash)
  c.strokeStyle = colour
  c.stroke()
  c.setLineDash([])
}

// level draws a horizontal line with a name.
export function level(c, plot, value, name, colour) {
  const y = plot.toY(value)
  const { box } = plot
  if (y < box.y || y > box.y + box.height) return
  c.strokeStyle = colour
  c.setLineDash([2, 3])
  c.lineWidth = 1.5
  c.beginPath()
  line(c, box.x, y, box.x + box.width, y)
  c.stroke()
  c.setLineDash([])
  plate(c, name, box.x + box.width - 4, y - 9, 'right')
}

// plate writes text on a background that keeps it readable above anything.
export function plate(c, text, x, y, align = 'left') {
  c.font = font
  c.textAlign = align
  c.textBaseline = 'middle'
  const w = c.measureText(text).width
  const left = align === 'right' ? x - w : align === 'center' ? x - w / 2 : x
  c.globalAlpha = 0.85
  c.fillStyle = theme('--back')
  c.fillRect(left - 3, y - 8, w + 6, 16)
  c.globalAlpha = 1
  c.fillStyle = theme('--text')
  c.fillText(text, x, y)
}

// marks draws vertical lines at places of the axis: {x, text, kind}, kind "step", "oom", "peak" or "cursor". Texts
// that would overlap an earlier one are left out, so the important marks come first.
export function marks(c, plot, list) {
  const { box } = plot
  const taken = []
  for (const m of list) {
    const x = plot.toX(m.x)
    if (x < box.x - 1 || x > box.x + box.width + 1) continue
    c.strokeStyle = m.kind === 'oom' ? theme('--bad') : m.kind === 'cursor' ? theme('--text') : theme('--quiet')
    c.lineWidth = m.kind === 'step' ? 1 : 1.5
    c.setLineDash(m.kind === 'oom' ? [7, 3] : m.kind === 'cursor' ? [] : [2, 4])
    c.globalAlpha = m.kind === 'step' ? 0.45 : 1
    c.beginPath()
    c.moveTo(Math.round(x) + 0.5, box.y)
    c.lineTo(Math.round(x) + 0.5, box.y + box.height)
    c.stroke()
    c.setLineDash([])
    c.globalAlpha = 1
    if (!m.text) continue
    c.font = font
    const w = c.measureText(m.text).width + 10
    const at = Math.min(Math.max(x, box.x + w / 2), box.x + box.width - w / 2)
    if (taken.some(([a, b]) => at - w / 2 < b && at + w / 2 > a)) continue
    taken.push([at - w / 2, at + w / 2])
    c.textAlign = 'center'
    c.textBaseline = 'middle'
    c.fillStyle = m.kind === 'oom' ? theme('--bad') : theme('--text')
    c.fillText(m.text, at, box.y - 10)
  }
}

// names writes names on rectangles that have room for them: list has {x0, x1, y0, y1, text, colour} in pixels.
export function names(c, box, list) {
  c.font = font
  c.textAlign = 'left'
  c.textBaseline = 'middle'
  for (const r of list) {
    const x0 = Math.max(r.x0, box.x)
    const width = Math.min(r.x1, box.x + box.width) - x0 - 8
    const top = Math.max(r.y0, box.y)
    const bottom = Math.min(r.y1, box.y + box.height)
    if (width < 40 || bottom - top < 15) continue
    const text = fit(c, r.text, width)
    if (!text) continue
    c.fillStyle = r.colour
    c.fillText(text, x0 + 4, (top + bottom) / 2)
  }
}

// fit shortens a text to a width in pixels, or returns "" if less than 15 letters of it would stay.
export function fit(c, text, width) {
  if (c.measureText(text).width <= width) return text
  let n = Math.floor((text.length * width) / c.measureText(text).width)
  while (n > 14 && c.measureText(text.slice(0, n) + '…').width > width) n--
  return n > 14 ? text.slice(0, n) + '…' : ''
}
