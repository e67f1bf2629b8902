// The state at a moment: each segment a row, with its blocks.

import { eventOf, load, none } from 'ashlar/data.js'
import { choice, el, message } from 'ashlar/dom.js'
import { bytes, count, hex, plural } from 'ashlar/format.js'
import { css, shade, textOn, theme, themeColour } from 'ashlar/palette.js'
import { fit, font } from 'ashlar/axes.js'
import { colourer } from 'ashlar/groups.js'
import { momentBar } from 'ashlar/moments.js'

const rowHeight = 24
const labelWidth = 210

// A SegmentsView shows the segments at the moment of the state. Only the rows in sight are drawn.
export class SegmentsView {
  constructor(store, parent, app) {
    this.store = store
    this.app = app
    this.bar = el('div', { class: 'bar' })
    this.canvas = el('canvas', {
      tabindex: '0',
      role: 'img',
      'aria-roledescription': 'map of segments',
      'aria-label': 'State at a moment',
      'aria-description': 'Arrow up and down move through the segments, arrow left and right through their blocks.',
    })
    this.spacer = el('div', {})
    this.scroller = el('div', { class: 'segments', tabindex: '-1' }, this.canvas, this.spacer)
    this.tip = el('div', { class: 'tip', hidden: true, 'data-tip': 'state' })
    document.body.append(this.tip)
    parent.append(this.bar, this.scroller)
    this.observer = new ResizeObserver(() => this.draw())
    this.observer.observe(this.scroller)
    this.scroller.addEventListener('scroll', () => this.draw())
    this.canvas.addEventListener('pointermove', (e) => this.hover(e))
    this.canvas.addEventListener('pointerleave', () => {
      this.tip.hidden = true
    })
    this.canvas.addEventListener('click', (e) => this.pick(e))
    this.canvas.addEventListener('keydown', (e) => this.key(e))
    this.load()
  }

  close() {
    this.abort?.abort()
    this.observer.disconnect()
    this.tip.remove()
  }

  update(changed) {
    const has = (...fields) => fields.some((f) => changed.has(f))
    if (has('event')) this.load()
    else if (has('sort', 'scale', 'colour')) this.arrange()
    else this.draw()
  }

  refresh() {
    this.load()
  }

  async load() {
    const { store } = this
    this.abort?.abort()
    const abort = (this.abort = new AbortController())
    const event = store.listed
    this.controls('')
    try {
      const [lines, data] = await Promise.all([
        store.lines(),
        load(store.path('state', { event }), { signal: abort.signal }),
      ])
      if (abort.signal.aborted) return
      this.lines = lines
      this.data = data
      const h = data.header
      this.controls(
        `${plural(h.segments, 'segment')}, ${plural(h.blocks, 'block')}: ` +
          `${bytes(h.reserved)} reserved, ${bytes(h.requested)} requested, ${bytes(h.free)} free in segments`,
      )
      this.arrange()
    } catch (e) {
      if (e.name !== 'AbortError') this.bar.replaceChildren(momentBar(store), message(e.message, true))
    }
  }

  controls(summary) {
    const { store } = this
    this.bar.replaceChildren(
      momentBar(store),
      choice(
        'Order',
        [
          ['address', 'address'],
          ['size', 'size'],
          ['free', 'free memory'],
        ],
        store.state.sort ?? 'size',
        (v) => store.set({ sort: v }, true),
      ),
      choice(
        'Scale',
        [
          ['same', 'one for all rows'],
          ['full', 'each row full'],
        ],
        store.state.scale ?? 'same',
        (v) => store.set({ scale: v }, true),
      ),
      el('span', { class: 'summary', id: 'state-summary' }, summary),
    )
  }

  // arrange orders the rows.
  arrange() {
    const d = this.data
    if (!d) return
    const n = d.seg_size.length
    this.rows = Array.from({ length: n }, (_, s) => {
      const first = d.seg_first[s]
      const last = s + 1 < n ? d.seg_first[s + 1] : d.size.length
      let used = 0
      for (let i = first; i < last; i++) used += d.size[i]
      return { s, first, last, used, size: d.seg_size[s] }
    })
    const sort = this.store.state.sort ?? 'size'
    if (sort === 'size') this.rows.sort((a, b) => b.size - a.size)
    if (sort === 'free') this.rows.sort((a, b) => b.size - b.used - (a.size - a.used))
    this.largest = Math.max(1, ...this.rows.map((r) => r.size))
    this.of = colourer(this.store.state.colour ?? 'category', d, this.store.recording, this.lines)
    this.canvas.setAttribute('aria-label', `State at event ${d.header.event}: ${plural(n, 'segment')}`)
    this.scroller.dataset.loaded = String(d.header.event)
    this.draw()
  }

  // width returns the width of a row in pixels.
  width(row) {
    const full = this.scroller.clientWidth - labelWidth - 12
    return this.store.state.scale === 'full' ? full : Math.max(3, (full * row.size) / this.largest)
  }

  draw() {
    if (this.frame) return
    this.frame = requestAnimationFrame(() => {
      this.frame = 0
      this.paint()
    })
  }

  paint() {
    const { clientWidth: w, clientHeight: h, scrollTop } = this.scroller
    if (!this.rows || w === 0) return
    const ratio = Math.min(devicePixelRatio || 1, 2)
    this.canvas.width = w * ratio
    this.canvas.height = h * ratio
    this.spacer.style.height = Math.max(0, this.rows.length * rowHeight + 8 - h) + 'px'
    this.canvas.style.width = w + 'px'
    this.canvas.style.height = h + 'px'
    const c = this.canvas.getContext('2d')
    c.setTransform(ratio, 0, 0, ratio, 0, 0)
    c.fillStyle = theme('--back')
    c.fillRect(0, 0, w, h)
    c.font = font
    c.textBaseline = 'middle'
    const first = Math.floor(scrollTop / rowHeight)
    const last = Math.min(this.rows.length, Math.ceil((scrollTop + h) / rowHeight))
    for (let i = first; i < last; i++) this.paintRow(c, this.rows[i], i * rowHeight - scrollTop + 4, i)
  }

  paintRow(c, row, y, index) {
    const d = this.data
    const height = rowHeight - 5
    c.textAlign = 'right'
    c.fillStyle = theme('--text')
    const free = row.size - row.used
    c.fillText(`${bytes(row.size)}${free > 0 ? `, ${bytes(free)} free` : ''}`, labelWidth - 10, y + height / 2)
    const width = this.width(row)
    c.fillStyle = css(themeColour('--free'))
    c.fillRect(labelWidth, y, width, height)
    const scale = width / row.size
    let last = -1
    for (let i = row.first; i < row.last; i++) {
      const x = labelWidth + Number(d.address[i] - d.seg_address[row.s]) * scale
      const w = d.size[i] * scale
      if (w < 0.5 && x - last < 0.5) continue
      last = x
      const rgb = shade(this.of(i), d.block[i])
      c.fillStyle = css(rgb)
      c.fillRect(x, y, Math.max(w, 0.6), height)
      if (d.pending[i]) this.hatch(c, x, y, w, height)
      if (w > 46) {
        c.textAlign = 'left'
        c.fillStyle = textOn(rgb)
        const text = fit(c, `${bytes(d.size[i])} ${this.label(i)}`, w - 8)
        if (text) c.fillText(text, x + 4, y + height / 2)
      }
      if (d.block[i] === this.store.state.block) this.outline(c, x, y, w, height, 2.5)
    }
    this.outline(c, labelWidth, y, width, height, index === this.at ? 2 : 1)
  }

  // label returns the line of a block, or its category if it has no stack.
  label(i) {
    const line = this.lines[this.data.line[i]] ?? ''
    return line === '' || line.startsWith('(') ? (this.store.recording.categories[this.data.category[i]] ?? line) : line
  }

  outline(c, x, y, w, h, width) {
    c.lineWidth = width
    c.strokeStyle = width > 1 ? theme('--text') : theme('--quiet')
    c.strokeRect(x, y, Math.max(w, 1), h)
  }

  // hatch marks memory that another stream may still use.
  hatch(c, x, y, w, h) {
    c.save()
    c.beginPath()
    c.rect(x, y, w, h)
    c.clip()
    c.beginPath()
    for (let a = -h; a < w; a += 6) {
      c.moveTo(x + a, y + h)
      c.lineTo(x + a + h, y)
    }
    c.lineWidth = 1
    c.strokeStyle = '#000000'
    c.stroke()
    c.restore()
  }

  // place returns the row and the block under an event of the pointer; block is -1 for free memory.
  place(e) {
    if (!this.rows) return null
    const r = this.canvas.getBoundingClientRect()
    const row = this.rows[Math.floor((e.clientY - r.top + this.scroller.scrollTop) / rowHeight)]
    if (!row) return null
    const at = ((e.clientX - r.left - labelWidth) / this.width(row)) * row.size
    if (at < 0 || at >= row.size) return { row, block: -1, outside: true }
    const d = this.data
    for (let i = row.first; i < row.last; i++) {
      const from = Number(d.address[i] - d.seg_address[row.s])
      if (from <= at && at < from + d.size[i]) return { row, block: i }
    }
    return { row, block: -1 }
  }

  hover(e) {
    const p = this.place(e)
    this.tip.hidden = !p
    if (!p) return
    const d = this.data
    const { row } = p
    const r = this.store.recording
    const lines =
      p.block < 0
        ? [
            p.outside ? 'Segment' : 'Free memory in a segment',
            `segment of ${bytes(row.size)} at ${hex(d.seg_address[row.s])}`,
            `${plural(row.last - row.first, 'block')}, ${bytes(row.used)}; ${bytes(row.size - row.used)} free`,
            `stream ${r.streams[d.seg_stream[row.s]] ?? ''}, pool ${r.pools[d.seg_pool[row.s]] ?? ''}`,
          ]
        : [
            bytes(d.size[p.block]),
            this.lines[d.line[p.block]] ?? '',
            r.categories[d.category[p.block]],
            d.pending[p.block]
              ? 'freed; another stream still uses it'
              : `allocated by event ${count(eventOf(d.start[p.block]))}`,
          ]
    this.tip.replaceChildren(...lines.map((t, i) => el(i === 0 ? 'strong' : 'div', {}, t)))
    const right = e.clientX > innerWidth / 2
    this.tip.style.left = right ? 'auto' : e.clientX + 14 + 'px'
    this.tip.style.right = right ? innerWidth - e.clientX + 14 + 'px' : 'auto'
    this.tip.style.top = Math.min(e.clientY + 16, innerHeight - 120) + 'px'
  }

  pick(e) {
    const p = this.place(e)
    if (!p) return
    this.at = this.rows.indexOf(p.row)
    this.select(p.block)
  }

  select(block) {
    const id = block < 0 ? none : this.data.block[block]
    this.store.set({ block: id === none ? undefined : id }, true)
    this.draw()
  }

  // key moves through rows and their blocks.
  key(e) {
    if (!this.rows?.length || e.ctrlKey || e.metaKey || e.altKey) return
    const down = { ArrowDown: 1, ArrowUp: -1 }[e.key]
    const side = { ArrowRight: 1, ArrowLeft: -1 }[e.key]
    if (!down && !side) return
    e.preventDefault()
    if (down || this.at === undefined) {
      this.at = Math.min(Math.max((this.at ?? -1) + (down ?? 1), 0), this.rows.length - 1)
      const top = this.at * rowHeight
      if (top < this.scroller.scrollTop) this.scroller.scrollTop = top
      const bottom = top + 2 * rowHeight - this.scroller.clientHeight
      if (bottom > this.scroller.scrollTop) this.scroller.scrollTop = bottom
      this.draw()
      return
    }
    const row = this.rows[this.at]
    let i = row.first
    while (i < row.last && this.data.block[i] !== this.store.state.block) i++
    const next =
      i === row.last ? (side > 0 ? row.first : row.last - 1) : Math.min(Math.max(i + side, row.first), row.last - 1)
    if (row.last > row.first) this.select(next)
  }
}
