// What is said of the place under the pointer.

import { exported, load, none } from 'ashlar/data.js'
import { el } from 'ashlar/dom.js'
import { bytes, count, plural, time } from 'ashlar/format.js'

// A Hover shows a tip beside the pointer of a Timeline, and the figures of the moment in the page's status line.
export class Hover {
  constructor(timeline) {
    this.timeline = timeline
    this.block = none
    this.tip = el('div', { class: 'tip', hidden: true, 'data-tip': timeline.view })
    document.body.append(this.tip)
    const canvas = timeline.plot.canvas
    canvas.addEventListener('pointermove', (e) => {
      this.event = e
      if (this.frame) return
      this.frame = requestAnimationFrame(() => {
        this.frame = 0
        this.show(this.event)
      })
    })
    canvas.addEventListener('pointerleave', () => this.hide())
  }

  close() {
    cancelAnimationFrame(this.frame)
    clearTimeout(this.asking)
    this.tip.remove()
  }

  hide() {
    cancelAnimationFrame(this.frame)
    this.frame = 0
    clearTimeout(this.asking)
    this.tip.hidden = true
    this.outline(none)
  }

  outline(block) {
    if (block === this.block) return
    this.block = block
    this.timeline.plot.draw()
  }

  show(e) {
    const t = this.timeline
    const place = t.plot.place(e)
    if (!t.bands || t.plot.moving || place.x < 0 || place.x > 1 || place.y < 0 || place.y > 1) {
      this.hide()
      return
    }
    const p = t.plot.point(place)
    const column = t.bands.columnAt(p.x)
    this.status(column)
    const i = t.bands.hit(column, p.y)
    this.outline(i >= 0 ? t.bands.data.block[i] : none)
    clearTimeout(this.asking)
    const text = i >= 0 ? this.ofRectangle(i) : this.ofSpace(column, p.y)
    this.write(text, e)
    if (i < 0 && t.view === 'addresses' && t.bands.hitSegment(column, p.y) >= 0 && !exported()) {
      this.asking = setTimeout(() => this.askHole(t.bands.eventAt(column), p.y, e), 120)
    }
  }

  write(lines, e) {
    const { tip } = this
    tip.hidden = lines.length === 0
    if (tip.hidden) return
    tip.replaceChildren(...lines.map((line, i) => el(i === 0 ? 'strong' : 'div', {}, line)))
    const right = e.clientX > innerWidth / 2
    tip.style.left = right ? 'auto' : e.clientX + 14 + 'px'
    tip.style.right = right ? innerWidth - e.clientX + 14 + 'px' : 'auto'
    const below = e.clientY < innerHeight / 2
    tip.style.top = below ? e.clientY + 16 + 'px' : 'auto'
    tip.style.bottom = below ? 'auto' : innerHeight - e.clientY + 12 + 'px'
  }

  // ofRectangle describes a block, or blocks that were merged.
  ofRectangle(i) {
    const t = this.timeline
    const d = t.bands.data
    const r = t.store.recording
    const line = t.lines[d.line[i]] ?? ''
    const group = [r.categories[d.category[i]], 'stream ' + (r.streams[d.stream[i]] ?? '')].join(', ')
    if (d.block[i] === none) {
      const size = d.fill ? (d.h[i] * d.fill[i]) / 255 : d.h[i]
      return [`${plural(d.count[i], 'small block')}, ${bytes(size)}`, `most of it: ${line}`, group, 'click to zoom in']
    }
    const start = d.start[i] === none ? 'before the recording' : `by event ${count(d.start[i])}`
    return [`${bytes(d.h[i])}`, line, group, `allocated ${start}`]
  }

  // ofSpace describes a place without a block.
  ofSpace(column, y) {
    const t = this.timeline
    const d = t.bands.data
    if (t.view === 'addresses') return t.bands.hitSegment(column, y) >= 0 ? ['Free, in a segment'] : []
    if (t.view !== 'memory' || !t.store.recording.reserved_known || y > d.reserved[column] || y < d.requested[column])
      return []
    return [
      `${bytes(d.reserved[column] - d.requested[column])} reserved and not requested`,
      'cached, fragmented or rounded up',
    ]
  }

  // askHole asks which blocks keep a free part of a segment from being given back.
  async askHole(event, y, e) {
    const t = this.timeline
    try {
      const { hole } = await load(t.store.path('pick', { view: 'addresses', event, y: Math.floor(y) }, true))
      if (this.tip.hidden || !hole) return
      const pins = hole.pins.slice(0, 4).map((b) => `${bytes(b.size)} ${b.line}`)
      this.write(
        [
          `Free: ${bytes(hole.size)} of a segment of ${bytes(hole.segment.size)}`,
          hole.blocks
            ? `held by ${plural(hole.blocks, 'block')}, ${bytes(hole.pinned_bytes)}:`
            : 'no block is in the segment',
          ...pins,
        ],
        e,
      )
    } catch (error) {
      if (error.status === 0) this.timeline.failure(error.message)
    }
  }

  // status writes the figures of a column where the page shows them.
  status(column) {
    const t = this.timeline
    const d = t.bands.data
    const r = t.store.recording
    const parts = [`event ${count(t.bands.eventAt(column))}`]
    if (r.times) parts.push(time(d.time[column]))
    if (d.requested) parts.push(`requested ${bytes(d.requested[column])}`)
    if (d.reserved && r.reserved_known) parts.push(`reserved ${bytes(d.reserved[column])}`)
    t.onStatus?.(parts.join(' · '))
  }
}
