// Loading from the server, or from an exported page, which carries the answers.

// exported reports whether the page is an export: it has some answers and no server.
export function exported() {
  return Boolean(globalThis.ashlarExport)
}

// has reports whether a path can be loaded: any with a server, and those of an exported page that it carries.
export function has(path) {
  return !exported() || path in globalThis.ashlarExport.responses
}

// load answers a request of the protocol: the parsed JSON, or {header, arrays...} of a container. Errors have the
// server's sentence and its status.
export async function load(path, { signal, post, remove } = {}) {
  if (exported()) return decode(await carried(path))
  const options = { signal, cache: 'no-store', method: remove ? 'DELETE' : post ? 'POST' : 'GET' }
  if (post) {
    options.headers = { 'Content-Type': 'application/json' }
    options.body = JSON.stringify(post)
  }
  let response
  try {
    response = await fetch(path, options)
  } catch (e) {
    if (e.name === 'AbortError') throw e
    throw Object.assign(new Error('The server does not answer. Is "ashlar view" still running?'), { status: 0 })
  }
  const body = await response.arrayBuffer()
  if (!response.ok)
    throw Object.assign(new Error(sentence(body) || `status ${response.status}`), { status: response.status })
  const result = body.byteLength ? decode(body) : null
  if (response.status === 202) throw Object.assign(new Error('not ready'), { status: 202, done: result?.done })
  return result
}

async function carried(path) {
  const text = globalThis.ashlarExport.responses[path]
  if (text === undefined) throw Object.assign(new Error('This is not in an exported page.'), { status: 404 })
  const packed = new Blob([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))])
  return new Response(packed.stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer()
}

function sentence(body) {
  try {
    return JSON.parse(new TextDecoder().decode(body)).error
  } catch {
    return new TextDecoder().decode(body).slice(0, 300)
  }
}

const types = {
  u8: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  f32: Float32Array,
  f64: Float64Array,
  u64: BigUint64Array,
}

// decode reads a body: a container begins with "ASHV", anything else is JSON.
function decode(buffer) {
  const head = new DataView(buffer)
  if (buffer.byteLength < 16 || head.getUint32(0) !== 0x41534856) return JSON.parse(new TextDecoder().decode(buffer))
  if (head.getUint32(4, true) !== 1)
    throw new Error('The page and the server are of different versions: reload the page.')
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 16, head.getUint32(8, true))))
  const result = { header }
  for (const [name, a] of Object.entries(header.arrays)) result[name] = new types[a.type](buffer, a.offset, a.length)
  return result
}

// none is the number of a missing block, line or segment, and of the event before the first.
export const none = 0xffffffff

// eventOf returns an event of an array, in which the one before the first is none.
export function eventOf(e) {
  return e === none ? -1 : e
}

// tileFor returns the smallest tile of an exported recording that contains a range of its events, as LEVEL.K.
export function tileFor(events, levels, from, to) {
  const n = events + 1
  for (let level = levels - 1; level > 0; level--) {
    const part = n / 2 ** level
    const k = Math.min(Math.max(Math.floor(((from + 1) / part) * 2), 0), 2 * (2 ** level - 1))
    if ((k / 2 + 1) * part >= to + 1) return `${level}.${k}`
  }
  return '0.0'
}
