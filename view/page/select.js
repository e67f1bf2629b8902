// Search and filters of an exported page, on the data that it carries. A server answers both itself.

import { load, none } from 'ashlar/data.js'
import { parseBytes } from 'ashlar/format.js'
import { filters } from 'ashlar/state.js'

// A thing that is matched is a block or a rectangle: {size, category, stream, line, text, address, name}, where line is
// an index, and text returns what is searched, in lower case.

// searcher returns a function that finds things with a text: a size, also with > or < before it, an address, or a part
// of the text.
function searcher(q) {
  const text = q.trim().toLowerCase()
  const size = parseBytes(text)
  const bound = parseBytes(text.slice(1))
  if (text.startsWith('>') && bound !== null) return (x) => x.size > bound
  if (text.startsWith('<') && bound !== null) return (x) => x.size < bound
  if (/^0x[0-9a-f]+$/.test(text)) {
    const p = BigInt(text)
    return (x) => x.address !== undefined && BigInt(x.address) <= p && p < BigInt(x.address) + BigInt(x.size || 1)
  }
  return (x) => x.size === size || x.text().includes(text)
}

// matcher returns a function that reports whether a thing passes the filters of the state.
function matcher(state) {
  const all = []
  for (const field of ['category', 'stream', 'line']) {
    const v = state[field]
    if (v !== undefined && v !== '') all.push((x) => x[field] === v)
  }
  if (state.min) all.push((x) => x.size >= state.min)
  if (state.q) all.push(searcher(state.q))
  return (x) => all.every((match) => match(x))
}

// filterKey returns a text that differs for other filters.
export function filterKey(state) {
  return JSON.stringify(Object.keys(filters).map((field) => state[field] ?? null))
}

// blocksOf returns the blocks that the page carries, the largest ones, by their numbers.
async function blocksOf(store) {
  const path = store.path('blocks')
  if (store.carriedPath !== path) {
    const { blocks } = await load(path)
    store.carried = new Map(blocks.map((b) => [b.id, b]))
    store.carriedPath = path
  }
  return store.carried
}

function textOf(b) {
  const frames = (b.stack ?? []).map((f) => `${f.file}:${f.line} ${f.name}\n${f.label}`)
  return [b.line, b.category, b.tag, ...frames].join('\n').toLowerCase()
}

// things returns a function for what the arrays of a picture or of a state have at an index.
async function things(store, data, lines, sizeOf) {
  const r = store.recording
  const known = await blocksOf(store)
  return (i) => {
    const b = known.get(data.block[i])
    const category = r.categories[data.category[i]]
    return {
      block: b,
      size: sizeOf(i),
      category,
      stream: r.streams[data.stream[i]],
      line: data.line[i],
      address: b?.address,
      text: () => (b ? textOf(b) : `${lines[data.line[i]]}\n${category}`.toLowerCase()),
    }
  }
}

// filterPicture returns a picture of the rectangles that pass the filters. Merged blocks count as the largest of them.
// If it is stacked, the rectangles fall on each other.
export async function filterPicture(store, data, lines, stacked) {
  const sizeOf = (i) => (data.block[i] === none ? data.h[i] / data.count[i] : data.h[i])
  const thing = await things(store, data, lines, sizeOf)
  const match = matcher(store.state)
  const kept = []
  for (let i = 0; i < data.x0.length; i++) if (match(thing(i))) kept.push(i)
  return pick(data, stacked ? restack(data, kept) : kept.map((i) => [i, data.x0[i], data.x1[i], data.y[i]]))
}

// restack returns parts [rectangle, x0, x1, y] of rectangles, each on top of those below it in the picture.
function restack(data, kept) {
  const starts = [...kept].sort((a, b) => data.x0[a] - data.x0[b])
  const parts = []
  let active = [] // parts that reach the current column, from the lowest
  let next = 0
  for (let column = 0; column < data.header.columns; column++) {
    const before = active.length
    active = active.filter((p) => data.x1[p[0]] > column)
    let changed = active.length < before
    for (; next < starts.length && data.x0[starts[next]] <= column; next++) {
      const p = [starts[next], column, data.x1[starts[next]], -1]
      const at = active.findIndex((q) => data.y[q[0]] > data.y[p[0]])
      active.splice(at < 0 ? active.length : at, 0, p)
      changed = true
    }
    if (!changed) continue
    let y = 0
    for (let k = 0; k < active.length; k++) {
      const p = active[k]
      if (p[3] < 0) {
        p[3] = y
        parts.push(p)
      } else if (p[3] !== y) {
        active[k] = [p[0], column, p[2], y]
        parts.push(active[k])
        p[2] = column
      }
      y += data.h[p[0]]
    }
  }
  return parts
}

// pick returns a picture of parts of the rectangles of another one.
function pick(data, parts) {
  const out = { ...data }
  for (const name of ['h', 'block', 'count', 'category', 'stream', 'line', 'start', 'fill']) {
    if (data[name]) out[name] = data[name].constructor.from(parts, (p) => data[name][p[0]])
  }
  out.x0 = Uint32Array.from(parts, (p) => p[1])
  out.x1 = Uint32Array.from(parts, (p) => p[2])
  out.y = Float64Array.from(parts, (p) => p[3])
  return out
}

// activeAt returns the blocks at a moment that pass the filters, as things with their numbers.
async function activeAt(store, event) {
  const [lines, data] = await Promise.all([store.lines(), load(store.path('state', { event }))])
  const thing = await things(store, data, lines, (i) => data.size[i])
  const match = matcher(store.state)
  const found = []
  for (let i = 0; i < data.block.length; i++) {
    const x = thing(i)
    const label = lines[x.line]
    x.name = x.line === 0 && data.start[i] === none ? '(before the recording)' : label
    if (match(x)) found.push(x)
  }
  return found
}

const labels = {
  line: (x) => x.name,
  category: (x) => x.category,
  stream: (x) => x.stream,
  module: (x) => x.name.replace(/:-?\d+ .*$/, ''),
}

// holders returns the holders of the blocks that pass the filters.
export async function holders(store, event, by) {
  const groups = new Map()
  const found = await activeAt(store, event)
  for (const x of found) {
    const label = labels[by](x)
    if (!groups.has(label)) groups.set(label, { values: [label], bytes: 0, blocks: 0 })
    const g = groups.get(label)
    g.bytes += x.size
    g.blocks++
  }
  const list = [...groups.values()].sort((a, b) => b.bytes - a.bytes)
  return { event, by: [by], bytes: sum(found), blocks: found.length, total: list.length, holders: list }
}

function sum(things) {
  return things.reduce((bytes, x) => bytes + x.size, 0)
}

// flame returns the flame graph of the blocks that pass the filters. The page has the stacks of the largest blocks;
// others are shown by their lines.
export async function flame(store, event) {
  const root = { name: '', bytes: 0, blocks: 0, children: [] }
  for (const x of await activeAt(store, event)) {
    const own = (x.block?.stack ?? []).filter((f) => !f.folded).map((f) => f.label)
    let at = root
    at.bytes += x.size
    at.blocks++
    for (const name of own.length ? own.reverse() : [x.name]) {
      let child = at.children.find((c) => c.name === name)
      if (!child) {
        child = { name, bytes: 0, blocks: 0, children: [] }
        at.children.push(child)
      }
      at = child
      at.bytes += x.size
      at.blocks++
    }
  }
  return { event, bytes: root.bytes, blocks: root.blocks, root }
}

// search returns the blocks of the page with a text, and their lines.
export async function search(store, q, limit) {
  const [lines, known] = await Promise.all([store.lines(), blocksOf(store)])
  const match = searcher(q)
  const peak = store.recording.requested_peak.event
  const found = []
  const groups = new Map()
  for (const b of known.values()) {
    if (!match({ size: b.size, address: b.address, text: () => textOf(b) })) continue
    found.push(b)
    const line = Math.max(lines.indexOf(b.line), 0)
    if (!groups.has(line)) groups.set(line, { line, label: lines[line], bytes_at_peak: 0, blocks: 0, total_bytes: 0 })
    const g = groups.get(line)
    g.blocks++
    g.total_bytes += b.size
    if (b.start <= peak && peak < b.end) g.bytes_at_peak += b.size
  }
  const sorted = [...groups.values()].sort((a, b) => b.bytes_at_peak - a.bytes_at_peak || b.total_bytes - a.total_bytes)
  const among = known.size < store.recording.blocks ? known.size : 0 // of how many, if the page has not all blocks
  return { blocks: found.slice(0, limit), total: found.length, bytes: sum(found), lines: sorted.slice(0, limit), among }
}
