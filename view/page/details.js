// The panel beside a picture: the moment, the selected block, the legend.

import { load } from 'ashlar/data.js'
import { el, facts, message } from 'ashlar/dom.js'
import { bytes, count, plural, time } from 'ashlar/format.js'
import { Legend } from 'ashlar/groups.js'
import { momentName } from 'ashlar/moments.js'

// A Details shows what the state selects. open(view) changes the view, zoom(block) zooms to a block.
export class Details {
  constructor(store, element, { open, zoom }) {
    this.store = store
    this.open = open
    this.zoom = zoom
    this.moment = el('section', { 'aria-label': 'Moment' })
    this.block = el('section', { 'aria-label': 'Selected block', 'aria-live': 'polite' })
    this.legend = new Legend(store)
    element.replaceChildren(this.moment, this.block, this.legend.element)
  }

  async update() {
    this.abort?.abort()
    const abort = (this.abort = new AbortController())
    clearTimeout(this.waiting)
    await new Promise((done) => {
      this.waiting = setTimeout(done, 60)
    })
    if (abort.signal.aborted) return
    const parts = [
      [this.moment, this.updateMoment(abort.signal)],
      [this.block, this.updateBlock(abort.signal)],
      [this.legend.element, this.legend.update(abort.signal)],
    ]
    for (const [element, done] of parts) {
      done.catch((e) => {
        if (e.name !== 'AbortError') element.replaceChildren(message(e.message, true))
      })
    }
  }

  async updateMoment(signal) {
    const { store } = this
    // By stream, because categories of a long recording are known late.
    const here = await load(store.path('holders', { event: store.listed, by: 'stream' }), { signal })
    const r = store.recording
    const event = store.event
    const known = r.moments.find((m) => m.event === event)
    const title = store.state.event === undefined ? 'At the peak' : known ? nameOf(known.name) : 'At the cursor'
    const oom = r.ooms.find((o) => o.event === event)
    const buttons = el('div', { class: 'bar' })
    for (const m of r.moments.slice(0, 8)) {
      buttons.append(
        el(
          'button',
          {
            'aria-pressed': String(m.event === event),
            onclick: () => store.set({ event: m.event }, true),
          },
          momentName(r, m.name),
        ),
      )
    }
    if (oom) buttons.append(el('button', { onclick: () => this.open('whatif') }, 'What would have helped?'))
    this.moment.replaceChildren(
      el('h2', {}, title),
      facts([
        ['event', `${count(here.event)} of ${count(r.events)}`],
        ['time', r.times && here.time !== null ? time(here.time) : null],
        ['requested', `${bytes(here.bytes)} in ${plural(here.blocks, 'block')}`],
        ['failed request', oom && `${bytes(oom.size)} by ${oom.line || 'unknown code'}, ${bytes(oom.free)} free`],
      ]),
      buttons,
    )
  }

  async updateBlock(signal) {
    const { store } = this
    const id = store.state.block
    if (id === undefined) {
      this.block.replaceChildren(
        el(
          'p',
          { class: 'summary' },
          'Click a block to see its code and its lifetime. Wheel zooms, drag pans, ? lists the keys.',
        ),
      )
      return
    }
    const b = await store.block(id, signal)
    const r = store.recording
    const when = (event, us) => count(event) + (us === null || us === undefined ? '' : ` (${time(us)})`)
    this.block.replaceChildren(
      el('h2', {}, `Block of ${bytes(b.size)}`),
      facts([
        ['category', b.category],
        ['code', b.line],
        ['tag', b.tag],
        ['allocated', b.recorded ? `event ${when(b.start, b.start_time)}` : 'before the recording'],
        ['freed', b.alive_at_end && b.freed >= r.events ? 'never in the recording' : `event ${count(b.freed)}`],
        ['available', b.alive_at_end ? null : `event ${when(b.end, b.end_time)}`],
        ['lifetime', plural(b.end - Math.max(b.start, -1), 'event')],
        ['address', b.address],
        ['size', `${count(b.size)} bytes`],
        ['stream', b.stream],
        ['pool', b.pool],
        [
          'segment',
          b.segment && `${bytes(b.segment.size)} at ${b.segment.address}${b.segment.expandable ? ', expandable' : ''}`,
        ],
      ]),
      el(
        'div',
        { class: 'bar' },
        el('button', { onclick: () => this.zoom(id) }, 'Zoom to it'),
        el('button', { onclick: () => store.set({ event: Math.max(b.start, -1) }, true) }, 'Cursor to its start'),
        el('button', { onclick: () => store.set({ block: undefined }, true) }, 'Deselect'),
      ),
      stackOf(b.stack),
    )
  }
}

// nameOf returns the title of a named moment.
function nameOf(moment) {
  return moment.startsWith('oom') ? 'When a request failed' : `At the ${moment}`
}

// stackOf lists the frames of a stack, with those of libraries folded away.
function stackOf(stack) {
  if (!stack || stack.length === 0) return el('p', { class: 'summary' }, 'No stack was recorded.')
  const own = stack.filter((f) => !f.folded)
  const shown = own.length ? own : stack
  const list = (frames) =>
    el(
      'ol',
      { class: 'stack' },
      frames.map((f) => el('li', {}, f.label)),
    )
  const out = el('div', {}, el('h3', {}, 'Stack, innermost first'), list(shown))
  if (shown.length < stack.length) {
    out.append(el('details', {}, el('summary', {}, `all ${stack.length} frames, with libraries`), list(stack)))
  }
  return out
}
