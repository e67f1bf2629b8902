// Search: code, tags, sizes and addresses.

import { exported, load } from 'ashlar/data.js'
import { el, message } from 'ashlar/dom.js'
import { bytes, count, plural } from 'ashlar/format.js'
import { search } from 'ashlar/select.js'

// A Search is a field whose answers open in a dialog. zoom(block) goes to a block, open(view, patch) to the blocks of
// a line.
export class Search {
  constructor(store, form, dialog, { zoom, open }) {
    this.store = store
    this.dialog = dialog
    this.zoom = zoom
    this.open = open
    this.input = form.querySelector('input')
    form.addEventListener('submit', (e) => {
      e.preventDefault()
      this.run(this.input.value.trim())
    })
  }

  async run(q) {
    if (!q) return
    this.abort?.abort()
    const abort = (this.abort = new AbortController())
    const close = el('button', { onclick: () => this.dialog.close() }, 'Close')
    const list = el('div', { class: 'answers' }, 'Searching …')
    this.dialog.replaceChildren(
      el('div', { class: 'bar' }, el('h2', {}, `Search: ${q}`), el('span', { class: 'space' }), close),
      list,
    )
    if (!this.dialog.open) this.dialog.showModal()
    try {
      const a = exported()
        ? await search(this.store, q, 200)
        : await load(this.store.path('search', { q, limit: 200 }), { signal: abort.signal })
      if (abort.signal.aborted) return
      list.replaceChildren(...this.answers(a, q))
      list.querySelector('button')?.focus()
    } catch (e) {
      if (e.name !== 'AbortError') list.replaceChildren(message(e.message, true))
    }
  }

  answers(a, q) {
    const code = []
    const blocks = []
    const notes = a.among ? [message(`An exported page has the ${count(a.among)} largest blocks.`)] : []
    if (a.total === 0 && a.lines.length === 0) {
      return [
        message('Nothing was found. Search for code ("forward"), sizes ("512MiB", ">1GiB") or addresses ("0x7f..").'),
        ...notes,
      ]
    }
    if (a.lines.length) {
      code.push(
        el('h3', {}, 'Code'),
        el(
          'ul',
          { class: 'legend' },
          a.lines.map((l) =>
            this.item(l.label, `${bytes(l.bytes_at_peak)} at the peak, ${plural(l.blocks, 'block')}`, () =>
              this.open('memory', { line: l.line, q: undefined }),
            ),
          ),
        ),
      )
    }
    if (a.total) {
      const shown = a.blocks.length < a.total ? `, the ${count(a.blocks.length)} largest` : ''
      blocks.push(
        el('h3', {}, `${plural(a.total, 'block')}, ${bytes(a.bytes)}${shown}`),
        el(
          'ul',
          { class: 'legend' },
          a.blocks.map((b) =>
            this.item(
              `${bytes(b.size)} ${b.line}`,
              `${b.recorded ? `event ${count(b.start)}` : 'before the recording'}, ${b.address}`,
              () => this.zoom(b.id),
            ),
          ),
        ),
      )
    }
    // Sizes and addresses ask for blocks.
    return [...(/^[\d<>]/.test(q) ? [...blocks, ...code] : [...code, ...blocks]), ...notes]
  }

  item(label, note, action) {
    return el(
      'li',
      {},
      el(
        'button',
        { onclick: () => this.go(action) },
        el('span', { class: 'label' }, label),
        el('span', { class: 'bytes' }, note),
      ),
    )
  }

  go(action) {
    this.dialog.close()
    action()
  }
}
