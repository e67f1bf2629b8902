// Pictures over time: memory, addresses and the plan.

import { exported, load, none, tileFor } from 'ashlar/data.js'
import { el } from 'ashlar/dom.js'
import { Bands } from 'ashlar/bands.js'
import { Plot } from 'ashlar/plot.js'
import { Viewport } from 'ashlar/viewport.js'
import { colourer } from 'ashlar/groups.js'
import { Painter } from 'ashlar/painter.js'
import { themeColour } from 'ashlar/palette.js'
import { Hover } from 'ashlar/hover.js'
import { filterKey, filterPicture } from 'ashlar/select.js'

// The pictures: the last part of their path, how they are called, and how high they are.
export const kinds = {
  memory: {
    path: 'memory',
    name: 'Memory over time',
    lines: true,
    height: (r) => Math.max(r.requested_peak.bytes, r.reserved_peak?.bytes ?? 0) * 1.06,
  },
  addresses: { path: 'addresses', name: 'Address space over time', height: (r) => r.address_bytes },
  plan: { path: 'plan', name: 'Packing of ashlar plan', height: (r) => r.requested_peak.bytes * 1.06 },
}

// spread is the part of the window by which a request goes beyond it, on each side: panning shows something at once.
const spread = 0.25

// A Timeline is one picture, which follows the state of the store and changes it: the window, the cursor, the block.
export class Timeline {
  constructor(store, parent, kind) {
    this.store = store
    this.kind = kinds[kind]
    this.view = kind
    this.viewport = new Viewport(this.bounds())
    this.restore()
    this.plot = new Plot(parent, this.viewport, {
      name: this.kind.name,
      description: 'Arrow keys pan, plus and minus zoom, comma and full stop move the cursor, J and K select blocks.',
      painter: new Painter(this),
    })
    this.hover = new Hover(this)
    this.viewport.onMove((moving) => this.moved(moving))
    this.plot.onResize = () => this.request()
    this.plot.canvas.addEventListener('pick', (e) => this.pick(this.plot.point(e.detail)))
    this.plot.canvas.addEventListener('keydown', (e) => this.key(e))
  }

  close() {
    this.abort?.abort()
    clearTimeout(this.waiting)
    this.hover.close()
    this.plot.close()
    this.closed = true
  }

  get axis() {
    return this.store.state.axis === 'time' && this.store.recording.times ? 'time' : 'event'
  }

  bounds() {
    const r = this.store.recording
    const high = this.planHeight ?? this.kind.height(r)
    return this.axis === 'time'
      ? { x0: 0, x1: r.duration_us, y0: 0, y1: high }
      : { x0: -1, x1: r.events, y0: 0, y1: high }
  }

  // restore takes the window from the state.
  restore() {
    const { from, to, low, high } = this.store.state
    this.viewport.setBounds(this.bounds())
    this.viewport.reset()
    this.viewport.show({
      ...(to > from && { x0: from, x1: to }),
      ...(high > low && { y0: low, y1: high }),
    })
  }

  moved(moving) {
    const v = this.viewport
    const b = v.bounds
    const wide = v.x0 <= b.x0 && v.x1 >= b.x1
    const tall = v.y0 <= b.y0 && v.y1 >= b.y1
    this.own = true
    this.store.set({
      from: wide ? undefined : v.x0,
      to: wide ? undefined : v.x1,
      low: tall ? undefined : v.y0,
      high: tall ? undefined : v.y1,
    })
    this.own = false
    if (!moving) this.loading = this.request()
    else if (!this.waiting) this.waiting = setTimeout(() => this.request(), 200)
  }

  // update follows changes of the state that did not come from this picture.
  update(changed) {
    const has = (...fields) => fields.some((f) => changed.has(f))
    if (this.own) return
    if (has('axis')) {
      this.store.set({ from: undefined, to: undefined })
      this.restore()
      return
    }
    if (has('from', 'to', 'low', 'high')) this.restore()
    else if (has('category', 'stream', 'line', 'min', 'q')) this.request()
    else if (has('colour')) this.recolour()
    else this.plot.draw()
  }

  // refresh loads everything again, because the recording grew.
  refresh() {
    const whole = this.viewport.whole()
    this.viewport.setBounds(this.bounds())
    if (whole) this.viewport.reset()
    this.request()
  }

  // range returns what to ask for: the window and a part around it.
  range() {
    const v = this.viewport
    const b = v.bounds
    const dx = (v.x1 - v.x0) * spread
    const dy = (v.y1 - v.y0) * spread
    const round = this.axis === 'event'
    const from = Math.max(b.x0, v.x0 - dx)
    const to = Math.min(b.x1, v.x1 + dx)
    const out = { from: round ? Math.floor(from) : from, to: round ? Math.ceil(to) : to }
    const { width, height } = this.plot.box
    const ratio = this.plot.ratio
    out.width = Math.min(4096, Math.round((width * ratio * (to - from)) / (v.x1 - v.x0)))
    const low = Math.max(b.y0, v.y0 - dy)
    const high = Math.min(b.y1, v.y1 + dy)
    out.height = Math.min(4096, Math.round((height * ratio * (high - low)) / (v.y1 - v.y0)))
    return { ...out, low: Math.floor(low), high: Math.ceil(high) }
  }

  path() {
    const { store, viewport: v } = this
    if (!exported()) return store.path(this.kind.path, { axis: this.axis, ...this.range() }, true)
    const tile = tileFor(store.recording.events, store.exportLevels, v.x0, v.x1)
    return store.path(this.kind.path, { tile })
  }

  // request loads the rectangles of the window, and gives up what it was loading before.
  async request() {
    clearTimeout(this.waiting)
    this.waiting = 0
    if (this.closed || !this.plot.box) return
    const path = this.path()
    const local = exported() && this.store.filtered
    const key = path + '#' + this.store.recording.generation + (local ? filterKey(this.store.state) : '')
    if (key === this.asked) return
    this.asked = key
    this.abort?.abort()
    const abort = (this.abort = new AbortController())
    try {
      const [lines, answer] = await Promise.all([this.store.lines(), load(path, { signal: abort.signal })])
      const data = local ? await filterPicture(this.store, answer, lines, this.view === 'memory') : answer
      if (abort.signal.aborted || this.closed) return
      this.failure(null)
      this.accept(data, lines)
      this.shownPath = path
    } catch (e) {
      if (e.name === 'AbortError' || this.closed) return
      this.asked = undefined
      if (e.status === 202) {
        this.failure(`The plan is being made: ${Math.round(100 * (e.done ?? 0))} %`)
        this.waiting = setTimeout(() => this.request(), 500)
      } else {
        this.failure(e.message)
      }
    }
  }

  accept(data, lines) {
    this.lines = lines
    if (data.header.height && data.header.height !== this.planHeight) {
      this.planHeight = data.header.height
      const whole = this.viewport.whole()
      this.viewport.setBounds(this.bounds())
      if (whole) this.viewport.reset()
    }
    this.bands = new Bands(data)
    this.plot.show(this.bands, this.colours())
    this.describe()
    this.onLoad?.()
    this.plot.element.dataset.loaded = String(Number(this.plot.element.dataset.loaded ?? 0) + 1)
  }

  colours() {
    const of = colourer(this.store.state.colour ?? 'category', this.bands.data, this.store.recording, this.lines)
    const panel = themeColour('--free')
    return this.bands.colours(of, panel)
  }

  recolour() {
    if (this.bands) this.plot.recolour(this.colours())
  }

  // failure shows a sentence above the picture, or nothing.
  failure(text) {
    this.notice?.remove()
    this.notice = text ? el('p', { class: 'message notice', role: 'status' }, text) : null
    if (this.notice) this.plot.element.append(this.notice)
  }

  // describe gives the picture its name for readers of screens.
  describe() {
    this.plot.canvas.setAttribute(
      'aria-label',
      `${this.kind.name} of ${this.store.recording.name}, ` +
        `${this.bands.order.length} rectangles, the highest at ${this.bands.data.header.peak ?? 0} bytes`,
    )
  }

  // pick selects what is at a point: a block, a moment, or the inside of what was merged, by zooming there.
  pick(p) {
    if (!this.bands) return
    const column = this.bands.columnAt(p.x)
    const i = this.bands.hit(column, p.y)
    const event = this.bands.eventAt(column)
    const block = i >= 0 ? this.bands.data.block[i] : none
    if (i >= 0 && block === none) {
      this.zoomTo([i], true)
      return
    }
    this.store.set({ event, block: block === none ? undefined : block }, true)
  }

  // zoomTo shows rectangles, with some room around them.
  zoomTo(indices, merged) {
    const d = this.bands.data
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity]
    for (const i of indices) {
      x0 = Math.min(x0, d.x0[i])
      x1 = Math.max(x1, d.x1[i])
      y0 = Math.min(y0, d.y[i])
      y1 = Math.max(y1, d.y[i] + d.h[i])
    }
    const room = merged ? 0.1 : 0.35
    const dx = (x1 - x0) * room + 0.5
    const dy = (y1 - y0) * room
    this.viewport.show({ x0: this.bands.toAxis(x0 - dx), x1: this.bands.toAxis(x1 + dx), y0: y0 - dy, y1: y1 + dy })
  }

  // zoomToBlock shows one block, however small: its lifetime, and its height among the others.
  async zoomToBlock(id) {
    const block = await this.store.block(id)
    const y = this.view === 'addresses' ? block.y : await this.stackY(block)
    const start = this.axis === 'time' ? (block.start_time ?? 0) : block.start
    const end = this.axis === 'time' ? (block.end_time ?? this.viewport.bounds.x1) : block.end
    const dx = Math.max((end - start) * 0.2, this.axis === 'time' ? 1 : 2)
    const rect = { x0: start - dx, x1: end + dx }
    if (y !== null && y !== undefined) Object.assign(rect, { y0: y - block.size * 2, y1: y + block.size * 3 })
    this.store.set({ block: id, event: Math.max(block.start, -1) }, true)
    this.viewport.show(rect)
    await this.loading
    this.narrow(id)
    if (y === undefined) this.raise(id)
  }

  // raise shows the height of a block whose place the page was not told.
  raise(id) {
    const d = this.bands.data
    const i = this.bands.of(id)[0]
    if (i !== undefined) this.viewport.show({ y0: d.y[i] - d.h[i] * 2, y1: d.y[i] + d.h[i] * 3 })
  }

  // narrow shows less time if the band of a block leaves the window soon, because blocks below it come and go.
  narrow(id) {
    const d = this.bands.data
    const all = this.bands.of(id)
    if (all.length === 0) return
    const x0 = this.bands.toAxis(d.x0[all[0]])
    let x1 = x0
    for (const i of all) x1 = Math.max(x1, this.bands.toAxis(d.x1[i]))
    const { viewport: v } = this
    if (x1 - x0 > (v.x1 - v.x0) / 3) return
    const room = (x1 - x0) * 0.3
    v.show({ x0: x0 - room, x1: x1 + room })
  }

  // stackY returns the lower edge of a block's band when it was allocated. Bands are stacked in the order of the
  // blocks' numbers, so it halves the range of sizes until it meets the block.
  async stackY(block) {
    if (exported()) return undefined
    const event = block.start
    const y = async (at) => (await load(this.store.path('pick', { view: 'memory', event, y: at }, true))).block
    let lo = 0
    let hi = this.viewport.bounds.y1
    while (hi - lo > 1) {
      const middle = Math.floor((lo + hi) / 2)
      const met = await y(middle)
      if (met?.id === block.id) {
        if ((await y(middle - 1))?.id !== block.id) return middle
        hi = middle
      } else if (met && met.id < block.id) {
        lo = middle
      } else {
        hi = middle
      }
    }
    return hi
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || !this.bands) return
    const { store } = this
    switch (e.key) {
      case ',':
      case '<':
      case '.':
      case '>': {
        const sign = e.key === ',' || e.key === '<' ? -1 : 1
        const far = e.key === '<' || e.key === '>' ? 10 : 1
        const column = Math.max(1, Math.round((this.viewport.x1 - this.viewport.x0) / this.plot.box.width))
        const step = this.axis === 'event' ? column : 1
        store.set({ event: Math.max(-1, Math.min(store.recording.events - 1, store.event + sign * far * step)) })
        break
      }
      case 'j':
      case 'k':
        this.neighbour(e.key === 'k' ? 1 : -1)
        break
      case 'Enter':
        if (store.state.block === undefined) return
        this.zoomToBlock(store.state.block).catch((err) => this.failure(err.message))
        break
      default:
        return
    }
    e.preventDefault()
  }

  // neighbour selects the block above (1) or below (-1) the selected one, at the cursor.
  neighbour(direction) {
    const d = this.bands.data
    const column = this.bands.columnAt(this.axisOf(this.store.event))
    const stack = this.bands.at(column).filter((i) => d.block[i] !== none)
    if (stack.length === 0) return
    const now = stack.findIndex((i) => d.block[i] === this.store.state.block)
    const next =
      now < 0 ? (direction > 0 ? 0 : stack.length - 1) : Math.min(Math.max(now + direction, 0), stack.length - 1)
    this.store.set({ block: d.block[stack[next]] })
  }

  // axisOf returns where an event is on the axis: for times, as near as the columns tell.
  axisOf(event) {
    if (this.axis === 'event') return event + 0.5
    const d = this.bands?.data
    const r = this.store.recording
    const known = [...r.moments, r.requested_peak, ...r.ooms].find((m) => m.event === event && m.time !== undefined)
    if (known) return known.time
    if (!d) return 0
    let lo = 0
    for (let i = 0; i < d.event.length && (d.first[i] === none || d.first[i] <= event); i++) lo = i
    return d.time[lo]
  }
}
