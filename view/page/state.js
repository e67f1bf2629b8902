// The state of the page, which its address holds: a link restores what one sees.

import { load, exported, has } from 'ashlar/data.js'

// The fields of the address, with their names there. Numbers are parsed, everything else is text.
const numbers = new Set(['from', 'to', 'low', 'high', 'event', 'block', 'line', 'min', 'limit'])
const fields = [
  'recording',
  'view',
  'colour',
  'axis',
  'from',
  'to',
  'low',
  'high',
  'event',
  'block',
  'category',
  'stream',
  'line',
  'min',
  'q',
  'by',
  'other',
  'at',
  'specs',
  'limit',
  'sort',
  'scale',
]

// parse reads the state from the fragment of an address. Unknown fields and numbers that are none are left out.
export function parse(fragment) {
  const state = {}
  for (const [key, value] of new URLSearchParams(fragment.replace(/^#/, ''))) {
    if (!fields.includes(key)) continue
    if (!numbers.has(key)) state[key] = value
    else if (value !== '' && Number.isFinite(Number(value))) state[key] = Number(value)
  }
  return state
}

// format writes the state as the fragment of an address.
export function format(state) {
  const out = new URLSearchParams()
  for (const key of fields) {
    const v = state[key]
    if (v !== undefined && v !== null && v !== '') out.set(key, String(v))
  }
  return '#' + out.toString()
}

// The fields that select some of the blocks, with their names in the protocol.
export const filters = { category: 'category', stream: 'stream', line: 'line', min: 'min_size', q: 'q' }

// A Store holds the recordings and the state, and tells its listeners what changed.
export class Store {
  constructor() {
    this.recordings = []
    this.allocators = []
    this.state = parse(location.hash)
    this.listeners = []
    this.lineTables = new Map()
    addEventListener('popstate', () => {
      const state = parse(location.hash)
      if (format(state) === format(this.state)) return
      const changed = new Set(fields.filter((f) => state[f] !== this.state[f]))
      this.state = state
      this.tell(changed)
    })
  }

  onChange(f) {
    this.listeners.push(f)
  }

  tell(changed) {
    for (const f of this.listeners) f(changed)
  }

  // set changes fields of the state; undefined and null remove one. With push, the browser's Back button undoes it.
  set(patch, push = false) {
    const changed = new Set(Object.keys(patch).filter((k) => (patch[k] ?? undefined) !== (this.state[k] ?? undefined)))
    if (changed.size === 0) return
    for (const k of changed) {
      if (patch[k] === undefined || patch[k] === null) delete this.state[k]
      else this.state[k] = patch[k]
    }
    if (push) {
      this.write(true)
    } else {
      clearTimeout(this.writing)
      this.writing = setTimeout(() => this.write(false), 200)
    }
    this.tell(changed)
  }

  write(push) {
    clearTimeout(this.writing)
    const fragment = format(this.state)
    if (fragment === location.hash) return
    if (push) history.pushState(null, '', fragment)
    else history.replaceState(null, '', fragment)
  }

  // recording returns the one that the state names, or the first that can be shown.
  get recording() {
    const named = this.recordings.find((r) => r.id === this.state.recording)
    return named ?? this.recordings.find((r) => r.state === 'ready') ?? this.recordings[0]
  }

  // event returns the moment that the state names, or the peak.
  get event() {
    const r = this.recording
    const e = this.state.event ?? r.requested_peak.event
    return Math.min(Math.max(Math.round(e), -1), r.events - 1)
  }

  // listed returns the moment whose lists can be loaded: in an exported page, the last of its moments before the
  // event.
  get listed() {
    if (!exported()) return this.event
    const r = this.recording
    const moments = r.moments.map((m) => m.event).filter((e) => has(`api/r/${r.id}/holders?event=${e}&by=line`))
    const before = moments.filter((e) => e <= this.event)
    return before.length ? Math.max(...before) : Math.min(...moments)
  }

  // path returns a path of the recording's data, with the parameters and, if filtered is set, the filter.
  path(name, parameters = {}, filtered = false) {
    const q = new URLSearchParams()
    for (const [k, v] of Object.entries(parameters)) q.set(k, v)
    if (filtered && !exported()) {
      for (const [field, parameter] of Object.entries(filters)) {
        const v = this.state[field]
        if (v !== undefined && v !== null && v !== '') q.set(parameter, v)
      }
    }
    const query = q.toString().replace(/%2C/g, ',')
    return `api/r/${encodeURIComponent(this.recording.id)}/${name}` + (query ? '?' + query : '')
  }

  // block returns a block by its number. An exported page has the largest ones.
  async block(id, signal) {
    if (!exported()) return load(this.path('block', { id }), { signal })
    const { blocks } = await load(this.path('blocks'))
    const block = blocks.find((b) => b.id === id)
    if (!block) throw new Error('This block is not in the exported page, which has the largest ones.')
    return block
  }

  // filtered reports whether a filter is set.
  get filtered() {
    return Object.keys(filters).some(
      (f) => this.state[f] !== undefined && this.state[f] !== null && this.state[f] !== '',
    )
  }

  // lines returns the table of the recording's lines.
  async lines() {
    const r = this.recording
    const key = r.id + '/' + r.generation
    if (!this.lineTables.has(key)) {
      const table = load(this.path('lines')).then((a) => a.lines)
      for (const old of this.lineTables.keys()) if (old.startsWith(r.id + '/')) this.lineTables.delete(old)
      table.catch(() => this.lineTables.delete(key))
      this.lineTables.set(key, table)
    }
    return this.lineTables.get(key)
  }
}
