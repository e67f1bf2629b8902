// The holders of memory at a moment: a flame graph and a table.

import { exported, has, load } from 'ashlar/data.js'
import { choice, el, message, swatch } from 'ashlar/dom.js'
import { bytes, count, plural } from 'ashlar/format.js'
import { colourOfGroup } from 'ashlar/groups.js'
import { css, groupColour, textOn } from 'ashlar/palette.js'
import { momentBar } from 'ashlar/moments.js'
import * as select from 'ashlar/select.js'

const keys = [
  ['line', 'line'],
  ['function', 'function'],
  ['module', 'module'],
  ['stack', 'stack'],
  ['category', 'category'],
  ['stream', 'stream'],
  ['pool', 'pool'],
  ['tag', 'tag'],
]

// mostFlames is how many parts of a flame graph are drawn; parts below a thousandth of the width are left out anyway.
const mostFlames = 1500

// A HoldersView shows who holds the memory at the moment of the state.
export class HoldersView {
  constructor(store, parent, app) {
    this.store = store
    this.app = app
    this.bar = el('div', { class: 'bar' })
    this.flame = el('div', {
      class: 'flame',
      role: 'group',
      'aria-label': 'Flame graph of stacks, outermost code at the top',
    })
    this.filter = el('input', {
      type: 'search',
      'aria-label': 'Filter the table',
      placeholder: 'filter the table',
      oninput: () => this.table(),
    })
    this.list = el('div')
    this.element = el(
      'div',
      { class: 'scroll' },
      el('h2', {}, 'Flame graph'),
      this.flame,
      el('h2', {}, 'Table'),
      this.filter,
      this.list,
    )
    parent.append(this.bar, this.element)
    this.load()
  }

  close() {
    this.abort?.abort()
  }

  update(changed) {
    if (['event', 'by', 'category', 'stream', 'line', 'min', 'q', 'sort'].some((f) => changed.has(f))) this.load()
  }

  refresh() {
    this.load()
  }

  async load() {
    const { store } = this
    this.abort?.abort()
    const abort = (this.abort = new AbortController())
    const by = store.state.by ?? (store.recording.stacks ? 'line' : 'category')
    const event = store.listed
    this.bar.replaceChildren(
      momentBar(store),
      choice(
        'Group by',
        keys.filter(([k]) => has(store.path('holders', { event, by: k }))),
        by,
        (v) => store.set({ by: v }, true),
      ),
    )
    if (by === 'category' && store.recording.settling)
      this.list.replaceChildren(message('The categories of the blocks are being inferred.'))
    try {
      const options = { signal: abort.signal }
      const local = exported() && store.filtered
      const [lines, holders, flame] = await Promise.all([
        store.lines(),
        local ? select.holders(store, event, by) : load(store.path('holders', { event, by }, true), options),
        local ? select.flame(store, event) : load(store.path('flame', { event }, true), options),
      ])
      if (abort.signal.aborted) return
      this.lines = lines
      this.holders = holders
      this.root = flame.root
      this.by = by
      this.drawFlame(flame.root, [])
      this.table()
    } catch (e) {
      if (e.name !== 'AbortError') this.list.replaceChildren(message(e.message, true))
    }
  }

  // drawFlame shows a part of the graph over the whole width, below those that contain it.
  drawFlame(root, above) {
    this.flame.replaceChildren()
    if (root.bytes === 0) {
      this.flame.append(message('No memory is active at this moment.'))
      return
    }
    const rows = 20
    above.forEach((node, i) =>
      this.flameButton(node, 0, 1, i * rows, root, () => this.drawFlame(node, above.slice(0, i))),
    )
    let drawn = 0
    let deepest = above.length
    const place = (node, left, depth) => {
      const width = node.bytes / root.bytes
      if (width < 0.001 || drawn++ > mostFlames) return
      deepest = Math.max(deepest, depth)
      const parents = node === root ? above : [...above, root]
      this.flameButton(node, left, width, depth * rows, root, () =>
        this.drawFlame(node, node === root ? above : parents),
      )
      let x = left
      for (const child of [...(node.children ?? [])].sort((a, b) => b.bytes - a.bytes)) {
        place(child, x, depth + 1)
        x += child.bytes / root.bytes
      }
    }
    place(root, 0, above.length)
    this.flame.style.height = (deepest + 1) * rows + 'px'
  }

  flameButton(node, left, width, top, root, onclick) {
    const name = node.name || 'everything'
    const rgb = node.name ? groupColour('', hash(node.name)) : [190, 196, 204]
    const percent = ((100 * node.bytes) / this.root.bytes).toFixed(1)
    const share = `${bytes(node.bytes)} in ${plural(node.blocks, 'block')}, ${percent} %`
    const b = el(
      'button',
      { class: 'part', title: `${name}\n${share}`, 'aria-label': `${name}: ${share}`, onclick },
      width > 0.02 ? `${name} ${bytes(node.bytes)}` : '',
    )
    Object.assign(b.style, {
      left: 100 * left + '%',
      width: `max(2px, calc(${100 * width}% - 1px))`,
      top: top + 'px',
      background: css(rgb),
      color: textOn(rgb),
    })
    b.dataset.bytes = node.bytes
    this.flame.append(b)
  }

  // table lists the groups whose label contains the filter's text.
  table() {
    const { holders: h, by, store } = this
    if (!h) return
    const wanted = this.filter.value.toLowerCase()
    const sort = store.state.sort === 'blocks' ? 'blocks' : 'bytes'
    const rows = h.holders
      .filter((x) => x.values.join(' ').toLowerCase().includes(wanted))
      .sort((a, b) => b[sort] - a[sort])
    const sum = rows.reduce((s, x) => s + x.bytes, 0)
    const blocks = rows.reduce((s, x) => s + x.blocks, 0)
    const rest = h.rest?.bytes
      ? ` ${bytes(h.rest.bytes)} more in ${count(h.total - h.holders.length)} smaller groups.`
      : ''
    const head = (key, text) =>
      el(
        'th',
        { class: 'number', scope: 'col', 'aria-sort': sort === key ? 'descending' : 'none' },
        el('button', { onclick: () => store.set({ sort: key }) }, text),
      )
    const table = el(
      'table',
      {},
      el(
        'caption',
        {},
        `${bytes(sum)} in ${plural(blocks, 'block')} of ${bytes(h.bytes)} at event ${count(h.event)}.${rest}`,
      ),
      el(
        'thead',
        {},
        el(
          'tr',
          {},
          el('th', { scope: 'col' }, by),
          head('bytes', 'memory'),
          el('th', { class: 'number', scope: 'col' }, 'share'),
          head('blocks', 'blocks'),
        ),
      ),
      el(
        'tbody',
        {},
        rows.map((x) => this.row(x, h)),
      ),
    )
    this.list.replaceChildren(table)
  }

  row(x, h) {
    const { by, store, lines } = this
    const label = x.values.join(', ')
    const filter = this.filterOf(x.values[0])
    const name = filter
      ? el(
          'button',
          { title: 'Show these blocks alone, over time', onclick: () => this.app.open('memory', filter) },
          label || '(none)',
        )
      : label || '(none)'
    const colour = ['line', 'category', 'stream'].includes(by)
      ? swatch(css(colourOfGroup(by, x.values[0], store.recording, lines)))
      : null
    return el(
      'tr',
      { 'data-bytes': x.bytes },
      el('th', { scope: 'row' }, colour, ' ', name),
      el('td', { class: 'number', title: `${count(x.bytes)} bytes` }, bytes(x.bytes)),
      el('td', { class: 'number' }, h.bytes ? ((100 * x.bytes) / h.bytes).toFixed(1) + ' %' : ''),
      el('td', { class: 'number' }, count(x.blocks)),
    )
  }

  // filterOf returns the part of the state that shows the blocks of a group alone, if there is one.
  filterOf(label) {
    switch (this.by) {
      case 'line': {
        const line = this.lines.indexOf(label)
        return line >= 0 ? { line } : null
      }
      case 'category':
        return { category: label }
      case 'stream':
        return { stream: label }
      case 'function':
      case 'module':
        return { q: label.split(' ').pop() }
    }
    return null
  }
}

function hash(text) {
  let h = 0
  for (let i = 0; i < text.length; i++) h = (Math.imul(h, 31) + text.charCodeAt(i)) >>> 0
  return h % 97
}
