// The difference of two recordings.

import { exported, has, load } from 'ashlar/data.js'
import { choice, el, message } from 'ashlar/dom.js'
import { bytes, count, signedBytes } from 'ashlar/format.js'

const keys = [
  ['line', 'line'],
  ['function', 'function'],
  ['module', 'module'],
  ['category', 'category'],
  ['stream', 'stream'],
]

// A DiffView compares the recording of the state with another one.
export class DiffView {
  constructor(store, parent) {
    this.store = store
    this.bar = el('div', { class: 'bar' })
    this.list = el('div', { class: 'scroll' })
    parent.append(this.bar, this.list)
    this.load()
  }

  close() {
    this.abort?.abort()
  }

  update(changed) {
    if (['other', 'by', 'at', 'recording'].some((f) => changed.has(f))) this.load()
  }

  refresh() {
    this.load()
  }

  async load() {
    const { store } = this
    const a = store.recording
    const others = store.recordings.filter((r) => r.id !== a.id && r.state === 'ready')
    if (others.length === 0) {
      this.list.replaceChildren(message('Open two recordings to see their difference: ashlar view BEFORE AFTER.'))
      return
    }
    const b = others.find((r) => r.id === store.state.other) ?? others[0]
    const by = keys.some(([k]) => k === store.state.by) ? store.state.by : 'line'
    const at = store.state.at ?? 'peak'
    const moments = ['peak', 'end', ...a.moments.map((m) => m.name)]
    const path = (key) =>
      `api/diff?a=${encodeURIComponent(a.id)}&b=${encodeURIComponent(b.id)}&at=${encodeURIComponent(at)}&by=${key}`
    this.bar.replaceChildren(
      el('span', {}, `Before: ${a.name}`),
      choice(
        'After',
        others.map((r) => [r.id, r.name]),
        b.id,
        (v) => store.set({ other: v }, true),
      ),
      choice(
        'At',
        (exported() ? ['peak'] : [...new Set(moments)]).map((m) => [m, m]),
        at,
        (v) => store.set({ at: v }, true),
      ),
      choice(
        'Group by',
        keys.filter(([k]) => has(path(k))),
        by,
        (v) => store.set({ by: v }, true),
      ),
    )
    this.abort?.abort()
    const abort = (this.abort = new AbortController())
    try {
      const d = await load(path(by), { signal: abort.signal })
      this.list.replaceChildren(
        this.table(d, by),
        ...(d.steps?.length ? [el('h2', {}, 'Steps'), this.steps(d.steps)] : []),
      )
    } catch (e) {
      if (e.name !== 'AbortError') this.list.replaceChildren(message(e.message, true))
    }
  }

  table(d, by) {
    const most = Math.max(1, ...d.changes.map((c) => Math.abs(c.after - c.before)))
    const grown = d.b.bytes - d.a.bytes
    return el(
      'table',
      {},
      el(
        'caption',
        {},
        `${bytes(d.a.bytes)} before, ${bytes(d.b.bytes)} after: ${signedBytes(grown)}, ` +
          `in ${count(d.total)} groups by ${by}.`,
      ),
      el(
        'thead',
        {},
        el(
          'tr',
          {},
          [by, 'change', '', 'before', 'after', 'blocks'].map((t, i) =>
            el(t ? 'th' : 'td', { class: i === 1 || i > 2 ? 'number' : false, scope: t ? 'col' : false }, t),
          ),
        ),
      ),
      el(
        'tbody',
        {},
        d.changes.map((c) =>
          el(
            'tr',
            { 'data-change': c.after - c.before },
            el('th', { scope: 'row' }, c.values.join(', ') || '(none)'),
            el('td', { class: c.after > c.before ? 'number grow' : 'number' }, signedBytes(c.after - c.before)),
            el('td', {}, bar((c.after - c.before) / most)),
            el('td', { class: 'number' }, bytes(c.before)),
            el('td', { class: 'number' }, bytes(c.after)),
            el('td', { class: 'number' }, `${count(c.blocks_before)} → ${count(c.blocks_after)}`),
          ),
        ),
      ),
    )
  }

  steps(list) {
    return el(
      'table',
      {},
      el(
        'thead',
        {},
        el(
          'tr',
          {},
          ['step', 'peak before', 'peak after', 'change', 'end before', 'end after'].map((t) =>
            el('th', { class: 'number', scope: 'col' }, t),
          ),
        ),
      ),
      el(
        'tbody',
        {},
        list.map((s) =>
          el(
            'tr',
            {},
            el('th', { class: 'number', scope: 'row' }, count(s.number)),
            [
              bytes(s.peak_before),
              bytes(s.peak_after),
              signedBytes(s.peak_after - s.peak_before),
              bytes(s.final_before),
              bytes(s.final_after),
            ].map((t) => el('td', { class: 'number' }, t)),
          ),
        ),
      ),
    )
  }
}

// bar draws a change as a part of the largest: to the right if memory grew, to the left if it shrank.
function bar(part) {
  const b = el('span', { class: part > 0 ? 'more' : 'less', 'aria-hidden': 'true' })
  b.style.width = Math.abs(part) * 50 + '%'
  b.style.marginLeft = part > 0 ? '50%' : 50 - Math.abs(part) * 50 + '%'
  return el('span', { class: 'change' }, b)
}
