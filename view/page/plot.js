// A plot: rectangles drawn by the GPU, with axes, lines, marks and labels above them.

import { el } from 'ashlar/dom.js'
import { makeRects } from 'ashlar/gl.js'
import { steer } from 'ashlar/viewport.js'
import { themeColour } from 'ashlar/palette.js'

const margin = { left: 78, right: 12, top: 22, bottom: 26 }

// frameBudget is how long a frame may take while the picture moves, in milliseconds.
const frameBudget = 33

// A Plot draws what its painter gives it: painter.paint(overlay, plot) draws above the rectangles.
export class Plot {
  constructor(parent, viewport, { name, description, painter, small }) {
    this.viewport = viewport
    this.painter = painter
    this.surface = el('canvas', { 'aria-hidden': 'true' })
    this.canvas = el('canvas', { tabindex: '0', role: 'img', 'aria-roledescription': 'plot', 'aria-label': name })
    if (description) this.canvas.setAttribute('aria-description', description)
    this.element = el('div', { class: 'plot' }, this.surface, this.canvas)
    parent.append(this.element)
    this.rects = makeRects(this.surface, small)
    this.overlay = this.canvas.getContext('2d')
    this.limit = this.rects.software() ? 6000 : Infinity
    this.moving = false
    this.last = 0
    this.frames = []
    this.observer = new ResizeObserver(() => this.resize())
    this.observer.observe(this.element)
    this.surface.addEventListener('redraw', () => this.draw())
    steer(this.canvas, viewport, (e) => this.place(e))
    this.canvas.addEventListener('range', (e) => {
      this.range = e.detail
      this.draw()
    })
    viewport.onMove((moving) => this.move(moving))
    this.resize() // events may come before the observer's first call
  }

  close() {
    this.observer.disconnect()
    cancelAnimationFrame(this.frame)
    this.closed = true
    this.rects.close()
    this.element.remove()
  }

  resize() {
    const box = this.element.getBoundingClientRect()
    if (box.width === 0 || box.height === 0) return
    const ratio = Math.min(devicePixelRatio || 1, 2)
    this.width = box.width
    this.height = box.height
    this.ratio = ratio
    for (const c of [this.surface, this.canvas]) {
      c.width = Math.round(box.width * ratio)
      c.height = Math.round(box.height * ratio)
    }
    this.box = {
      x: margin.left,
      y: margin.top,
      width: Math.max(20, box.width - margin.left - margin.right),
      height: Math.max(20, box.height - margin.top - margin.bottom),
    }
    this.paint()
    this.onResize?.()
  }

  // place returns where an event happened, as parts of the view from its lower left corner.
  place(e) {
    const r = this.canvas.getBoundingClientRect()
    return {
      x: (e.clientX - r.left - this.box.x) / this.box.width,
      y: 1 - (e.clientY - r.top - this.box.y) / this.box.height,
    }
  }

  // point returns the point of the view at a place.
  point(place) {
    const v = this.viewport
    return { x: v.x0 + place.x * (v.x1 - v.x0), y: v.y0 + place.y * (v.y1 - v.y0) }
  }

  // toX and toY convert a point of the view to pixels of the plot.
  toX(x) {
    return this.box.x + ((x - this.viewport.x0) / (this.viewport.x1 - this.viewport.x0)) * this.box.width
  }

  toY(y) {
    return this.box.y + (1 - (y - this.viewport.y0) / (this.viewport.y1 - this.viewport.y0)) * this.box.height
  }

  // show replaces the rectangles.
  show(bands, rgba) {
    this.bands = bands
    const geometry = bands.geometry()
    geometry.rgba = rgba
    this.rects.set(geometry)
    this.draw()
  }

  recolour(rgba) {
    this.rects.recolour(rgba)
    this.draw()
  }

  move(moving) {
    if (moving && !this.moving) this.last = 0
    this.moving = moving
    this.draw()
  }

  // draw paints in the next frame.
  draw() {
    if (this.frame || this.closed) return
    this.frame = requestAnimationFrame((now) => {
      this.frame = 0
      this.pace(now)
      this.paint()
    })
  }

  // pace adapts the number of rectangles in frames of a movement to the time that the last ones took.
  pace(now) {
    if (this.moving && this.last) {
      const took = now - this.last
      this.frames.push(took)
      if (this.frames.length > 300) this.frames.shift()
      const drawn = Math.min(this.limit, this.rects.count)
      if (took > frameBudget) this.limit = Math.max(500, drawn * 0.6)
      else if (took < frameBudget / 1.7) this.limit = drawn < this.rects.count ? this.limit * 1.15 + 100 : this.limit
    }
    this.last = this.moving ? now : 0
  }

  paint() {
    if (!this.box || this.closed) return
    const back = themeColour('--back')
    const r = this.ratio
    const box = {
      x: Math.round(this.box.x * r),
      y: Math.round(this.box.y * r),
      width: Math.round(this.box.width * r),
      height: Math.round(this.box.height * r),
    }
    const b = this.bands
    const v = this.viewport
    const view = b
      ? { x0: b.toColumn(v.x0), x1: b.toColumn(v.x1), y0: v.y0 - b.origin, y1: v.y1 - b.origin }
      : { x0: 0, x1: 1, y0: 0, y1: 1 }
    this.rects.draw(view, box, back, this.moving ? Math.floor(this.limit) : undefined)
    const c = this.overlay
    c.setTransform(r, 0, 0, r, 0, 0)
    c.clearRect(0, 0, this.width, this.height)
    this.painter.paint(c, this)
    if (this.range) {
      const [x0, x1] = this.range.map((x) => this.box.x + x * this.box.width)
      c.fillStyle = 'rgb(128 128 128 / 30%)'
      c.fillRect(x0, this.box.y, x1 - x0, this.box.height)
    }
  }
}
