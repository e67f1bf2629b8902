// Figures as text, and the ticks of axes.

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']

// bytes writes a size as Ashlar's commands do: "8.05GiB".
export function bytes(n) {
  if (n < 0) return '-' + bytes(-n)
  let u = 0
  let v = n
  while (v >= 1024 && u < units.length - 1) {
    v /= 1024
    u++
  }
  if (u === 0) return Math.round(v) + 'B'
  const digits = v >= 100 ? 0 : v >= 10 ? 1 : 2
  let s = v.toFixed(digits)
  if (s === '1024' && u < units.length - 1) return '1.00' + units[u + 1]
  return s + units[u]
}

// signedBytes writes a difference of sizes, with its sign.
export function signedBytes(n) {
  return (n > 0 ? '+' : '') + bytes(n)
}

// count writes a whole number with separators: "1,234,567".
export function count(n) {
  return Math.round(n)
    .toString()
    .replace(/\B(?=(\d{3})+(?!\d))/g, ',')
}

// plural writes a number with its noun: "1 block", "2 blocks".
export function plural(n, noun) {
  return count(n) + ' ' + noun + (n === 1 ? '' : 's')
}

// hex writes an address. It accepts numbers, BigInts and decimal or hexadecimal text.
export function hex(n) {
  return '0x' + BigInt(n).toString(16)
}

// time writes microseconds: "12.5s".
export function time(us) {
  if (us >= 60e6) return Math.floor(us / 60e6) + 'm' + ((us % 60e6) / 1e6).toFixed(1) + 's'
  if (us >= 1e6) return +(us / 1e6).toFixed(3) + 's'
  if (us >= 1e3) return +(us / 1e3).toFixed(3) + 'ms'
  return +us.toFixed(1) + 'µs'
}

// ticks returns about n round numbers between lo and hi: 1, 2 or 5 times a power of ten, or, if binary is set, powers
// of two times such a step, so that sizes read as whole KiB, MiB and GiB.
export function ticks(lo, hi, n, binary) {
  if (!(hi > lo)) return [lo]
  let unit = 1
  const raw = (hi - lo) / Math.max(1, n)
  if (binary) while (unit * 1024 <= raw) unit *= 1024
  const want = raw / unit
  let step = binary ? 1 : Math.pow(10, Math.floor(Math.log10(want)))
  if (binary) while (step < want) step *= 2
  else step *= want / step <= 1 ? 1 : want / step <= 2 ? 2 : want / step <= 5 ? 5 : 10
  step = Math.max(step * unit, 1)
  const out = []
  for (let t = Math.ceil(lo / step) * step; t <= hi; t += step) out.push(t)
  return out
}

// parseBytes reads a size as the server does: "512MiB", "1.5g", "100". It returns null for other texts.
export function parseBytes(text) {
  const parts = /^(\d+(?:\.\d+)?|\.\d+)\s*(?:([kmgtp]?)(i?)b?)$/i.exec(text.trim())
  if (!parts || (parts[2] === '' && parts[3])) return null
  const power = ' kmgtp'.indexOf(parts[2].toLowerCase() || ' ')
  const decimal = /[kmgtp]b$/i.test(text.trim())
  return Math.floor(Number(parts[1]) * (decimal ? 1000 : 1024) ** power)
}
