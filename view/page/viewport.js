// The part of a plot that is shown, and how wheel, drag and keys move it.

// A Viewport is a rectangle {x0, x1, y0, y1} within bounds of the same form. It tells its listeners when it moves;
// their argument says whether the movement goes on.
export class Viewport {
  constructor(bounds) {
    this.listeners = []
    this.setBounds(bounds)
    this.reset()
  }

  setBounds(bounds) {
    this.bounds = { ...bounds }
    if (!(this.bounds.x1 > this.bounds.x0)) this.bounds.x1 = this.bounds.x0 + 1
    if (!(this.bounds.y1 > this.bounds.y0)) this.bounds.y1 = this.bounds.y0 + 1
  }

  reset() {
    Object.assign(this, this.bounds)
  }

  // whole reports whether everything is shown.
  whole() {
    const b = this.bounds
    return this.x0 <= b.x0 && this.x1 >= b.x1 && this.y0 <= b.y0 && this.y1 >= b.y1
  }

  onMove(f) {
    this.listeners.push(f)
  }

  moved(moving) {
    for (const f of this.listeners) f(moving)
  }

  // show moves to a rectangle, whose missing sides stay, within the bounds.
  show(rect, moving = false) {
    Object.assign(this, rect)
    this.limit('x', 2)
    this.limit('y', 1)
    this.moved(moving)
  }

  // limit keeps one axis within the bounds, at least least wide.
  limit(axis, least) {
    const lo = this.bounds[axis + '0']
    const hi = this.bounds[axis + '1']
    let width = Math.max(this[axis + '1'] - this[axis + '0'], Math.min(least, hi - lo))
    width = Math.min(width, hi - lo)
    const start = Math.min(Math.max(this[axis + '0'], lo), hi - width)
    this[axis + '0'] = start
    this[axis + '1'] = start + width
  }

  // zoom magnifies an axis by a factor about a point.
  zoom(axis, factor, at, moving) {
    const lo = this[axis + '0']
    const hi = this[axis + '1']
    this.show({ [axis + '0']: at - (at - lo) / factor, [axis + '1']: at + (hi - at) / factor }, moving)
  }

  // pan moves by parts of the view.
  pan(dx, dy, moving) {
    const w = (this.x1 - this.x0) * dx
    const h = (this.y1 - this.y0) * dy
    this.show({ x0: this.x0 + w, x1: this.x1 + w, y0: this.y0 + h, y1: this.y1 + h }, moving)
  }
}

// The keys of every plot, for the page's help.
export const keyHelp = [
  ['← → ↑ ↓', 'pan'],
  ['+ −', 'zoom time'],
  ['[ ]', 'zoom sizes'],
  ['0', 'show everything'],
  [', .', 'move the cursor (with Shift: ten times as far)'],
  ['J K', 'select the block below or above, at the cursor'],
  ['Enter', 'zoom to the selected block'],
  ['M', 'show the state at the cursor'],
  ['H', 'show the holders at the cursor'],
]

// steer moves a viewport by the events of an element. place(event) gives the point of the plot under the pointer, as
// parts of the view from its lower left corner. It calls rest a while after the last movement of the wheel.
export function steer(element, viewport, place) {
  let rest = 0
  const settle = () => {
    clearTimeout(rest)
    rest = setTimeout(() => viewport.moved(false), 140)
  }
  element.addEventListener(
    'wheel',
    (e) => {
      e.preventDefault()
      const p = place(e)
      const step = e.deltaMode === 1 ? 20 : 1
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
        viewport.pan((e.deltaX * step) / 1000, 0, true)
      } else {
        const axis = e.shiftKey || e.altKey ? 'y' : 'x'
        const lo = viewport[axis + '0']
        const at = lo + p[axis] * (viewport[axis + '1'] - lo)
        viewport.zoom(axis, Math.exp((-e.deltaY * step) / 400), at, true)
      }
      settle()
    },
    { passive: false },
  )
  steerByDrag(element, viewport, place)
  element.addEventListener('keydown', (e) => {
    if (steerByKey(viewport, e)) e.preventDefault()
  })
}

// steerByDrag pans with the pointer. With Shift, it zooms to the range of time that the pointer passes over.
function steerByDrag(element, viewport, place) {
  let drag = null
  element.addEventListener('pointerdown', (e) => {
    if (e.button !== 0) return
    drag = {
      from: place(e),
      view: { x0: viewport.x0, x1: viewport.x1, y0: viewport.y0, y1: viewport.y1 },
      range: e.shiftKey,
    }
    element.setPointerCapture(e.pointerId)
  })
  element.addEventListener('pointermove', (e) => {
    if (!drag) return
    const p = place(e)
    const dx = p.x - drag.from.x
    const dy = p.y - drag.from.y
    if (!drag.moved && Math.abs(dx) + Math.abs(dy) < 0.005) return
    drag.moved = true
    if (drag.range) {
      element.dispatchEvent(new CustomEvent('range', { detail: [drag.from.x, p.x] }))
      return
    }
    const w = drag.view.x1 - drag.view.x0
    const h = drag.view.y1 - drag.view.y0
    const v = drag.view
    viewport.show({ x0: v.x0 - dx * w, x1: v.x1 - dx * w, y0: v.y0 - dy * h, y1: v.y1 - dy * h }, true)
  })
  element.addEventListener('pointerup', (e) => {
    if (!drag) return
    const { from, moved, range } = drag
    drag = null
    if (!moved) {
      element.dispatchEvent(new CustomEvent('pick', { detail: place(e) }))
    } else if (range) {
      const w = viewport.x1 - viewport.x0
      const [a, b] = [from.x, place(e).x].sort((x, y) => x - y)
      element.dispatchEvent(new CustomEvent('range', { detail: null }))
      viewport.show({ x0: viewport.x0 + a * w, x1: viewport.x0 + b * w })
    } else {
      viewport.moved(false)
    }
  })
  element.addEventListener('pointercancel', () => {
    drag = null
    viewport.moved(false)
  })
}

// steerByKey moves a viewport by a key, and reports whether the key was one of its own.
function steerByKey(viewport, e) {
  if (e.ctrlKey || e.metaKey || e.altKey) return false
  const middle = (axis) => (viewport[axis + '0'] + viewport[axis + '1']) / 2
  switch (e.key) {
    case 'ArrowLeft':
      viewport.pan(-0.15, 0)
      return true
    case 'ArrowRight':
      viewport.pan(0.15, 0)
      return true
    case 'ArrowUp':
      viewport.pan(0, 0.15)
      return true
    case 'ArrowDown':
      viewport.pan(0, -0.15)
      return true
    case '+':
    case '=':
      viewport.zoom('x', 1.5, middle('x'))
      return true
    case '-':
    case '_':
      viewport.zoom('x', 1 / 1.5, middle('x'))
      return true
    case ']':
      viewport.zoom('y', 1.5, middle('y'))
      return true
    case '[':
      viewport.zoom('y', 1 / 1.5, middle('y'))
      return true
    case '0':
    case 'Home':
      viewport.reset()
      viewport.moved(false)
      return true
  }
  return false
}
