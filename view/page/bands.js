// The rectangles of one answer of the server: blocks over time, by column and byte.

import { none, eventOf } from 'ashlar/data.js'
import { pack, shade } from 'ashlar/palette.js'

// A Bands is an answer for memory, addresses or the plan. Its rectangles are sorted by area, the largest first, after
// those of segments: a picture of the first n of them shows as much as n can.
export class Bands {
  constructor(data) {
    this.data = data
    this.columns = data.header.columns
    this.from = data.header.from
    this.to = data.header.to
    this.origin = data.header.low ?? 0
    this.segments = data.sx0 ? data.sx0.length : 0
    this.order = byArea(data)
  }

  get count() {
    return this.segments + this.order.length
  }

  // toColumn and toAxis convert between the axis, events or microseconds, and columns.
  toColumn(x) {
    return ((x - this.from) / (this.to - this.from)) * this.columns
  }

  toAxis(column) {
    return this.from + ((this.to - this.from) * column) / this.columns
  }

  // columnAt returns the column that contains a point of the axis.
  columnAt(x) {
    return Math.min(Math.max(Math.floor(this.toColumn(x)), 0), this.columns - 1)
  }

  // eventAt returns the event whose state a column shows.
  eventAt(column) {
    return eventOf(this.data.event[column])
  }

  // geometry returns the rectangles as a renderer takes them, with y above the origin.
  geometry() {
    const d = this.data
    const n = this.count
    const out = {
      count: n,
      x0: new Float32Array(n),
      x1: new Float32Array(n),
      y0: new Float32Array(n),
      y1: new Float32Array(n),
    }
    const s = this.segments
    for (let i = 0; i < s; i++) {
      out.x0[i] = d.sx0[i]
      out.x1[i] = d.sx1[i]
      out.y0[i] = d.sy[i] - this.origin
      out.y1[i] = d.sy[i] - this.origin + d.sh[i]
    }
    for (let j = 0; j < this.order.length; j++) {
      const i = this.order[j]
      out.x0[s + j] = d.x0[i]
      out.x1[s + j] = d.x1[i]
      out.y0[s + j] = d.y[i] - this.origin
      out.y1[s + j] = d.y[i] - this.origin + d.h[i]
    }
    return out
  }

  // colours returns the colour of each rectangle of geometry, from that of its group: of(i) is [red, green, blue].
  // Those that are partly free, and segments, are mixed with the colour free.
  colours(of, free) {
    const out = new Uint32Array(this.count)
    const segment = pack(free)
    out.fill(segment, 0, this.segments)
    const d = this.data
    for (let j = 0; j < this.order.length; j++) {
      const i = this.order[j]
      let rgb = of(i)
      if (d.block[i] !== none) rgb = shade(rgb, d.block[i])
      if (d.fill && d.fill[i] < 255) {
        const f = d.fill[i] / 255
        rgb = rgb.map((v, k) => Math.round(v * f + free[k] * (1 - f)))
      }
      out[this.segments + j] = pack(rgb)
    }
    return out
  }

  // hit returns the rectangle at a column and a height, or -1.
  hit(column, y) {
    const d = this.data
    for (let i = 0; i < d.x0.length; i++) {
      if (d.x0[i] <= column && column < d.x1[i] && d.y[i] <= y && y < d.y[i] + d.h[i]) return i
    }
    return -1
  }

  // hitSegment returns the segment's rectangle at a column and a height, or -1.
  hitSegment(column, y) {
    const d = this.data
    for (let i = 0; i < this.segments; i++) {
      if (d.sx0[i] <= column && column < d.sx1[i] && d.sy[i] <= y && y < d.sy[i] + d.sh[i]) return i
    }
    return -1
  }

  // at returns the rectangles at a column, from the lowest to the highest.
  at(column) {
    const d = this.data
    const out = []
    for (let i = 0; i < d.x0.length; i++) if (d.x0[i] <= column && column < d.x1[i]) out.push(i)
    return out.sort((a, b) => d.y[a] - d.y[b])
  }

  // of returns the rectangles of a block, in time.
  of(block) {
    const d = this.data
    const out = []
    for (let i = 0; i < d.block.length; i++) if (d.block[i] === block) out.push(i)
    return out.sort((a, b) => d.x0[a] - d.x0[b])
  }
}

// byArea returns the indices of the blocks' rectangles, the largest areas first, in classes of half a power of two.
function byArea(d) {
  const n = d.x0.length
  const classes = new Uint8Array(n)
  const counts = new Uint32Array(257)
  for (let i = 0; i < n; i++) {
    const area = Math.max((d.x1[i] - d.x0[i]) * d.h[i], 1)
    classes[i] = 255 - Math.min(255, Math.floor(2 * Math.log2(area)))
    counts[classes[i] + 1]++
  }
  for (let c = 0; c < 256; c++) counts[c + 1] += counts[c]
  const order = new Uint32Array(n)
  for (let i = 0; i < n; i++) order[counts[classes[i]]++] = i
  return order
}
