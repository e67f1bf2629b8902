// Colours. Groups differ in lightness as well as in hue, so that a picture stays readable in grey and to eyes that do
// not tell red from green.

// The colours of categories, by name, from dark to light.
const categories = {
  weights: [6, 58, 125],
  'optimizer state': [123, 58, 158],
  gradients: [208, 87, 47],
  unknown: [140, 146, 152],
  activations: [95, 207, 142],
  temporaries: [245, 192, 74],
  workspace: [178, 228, 244],
}

// The lightness of colours made by index: neighbours in the order differ much.
const lightness = [38, 66, 50, 78, 30, 58, 72, 44]

// groupColour returns the colour of a group, [red, green, blue] of 0 to 255, by its label if that is a category, and
// by its place in the order of the groups otherwise.
export function groupColour(label, index) {
  const fixed = categories[label]
  if (fixed) return fixed
  return fromHSL((index * 137.508 + 205) % 360, 58, lightness[index % lightness.length])
}

// ageColour returns the colour of an age between 0, new, and 1, as old as the recording: light to dark.
export function ageColour(part) {
  return fromHSL(210 + 70 * part, 60, 86 - 62 * part)
}

function fromHSL(h, s, l) {
  const a = (s / 100) * Math.min(l / 100, 1 - l / 100)
  const f = (n) => {
    const k = (n + h / 30) % 12
    return Math.round(255 * (l / 100 - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))))
  }
  return [f(0), f(8), f(4)]
}

// shade makes a colour a little lighter or darker, by a number such as that of a block, so that neighbours of one
// group can be told apart.
export function shade(rgb, n) {
  const d = ((Math.imul(n + 1, 0x9e3779b1) >>> 24) / 255 - 0.5) * 22
  return rgb.map((v) => Math.max(0, Math.min(255, Math.round(v + d))))
}

// pack makes the number that a renderer takes: red in the lowest byte.
export function pack([r, g, b]) {
  return (r | (g << 8) | (b << 16) | (255 << 24)) >>> 0
}

// css returns a colour as CSS writes it.
export function css([r, g, b]) {
  return `rgb(${r} ${g} ${b})`
}

// textOn returns black or white, which can be read on a colour.
export function textOn([r, g, b]) {
  const linear = (v) => (v <= 10 ? v / 3294 : Math.pow(v / 269 + 0.0513, 2.4))
  const luminance = 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
  return luminance > 0.18 ? '#000000' : '#ffffff'
}

let themes = new Map()

// theme returns a custom property of the page's theme, such as "--text".
export function theme(name) {
  if (!themes.has(name)) themes.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim())
  return themes.get(name)
}

// themeColour returns a custom property as [red, green, blue].
export function themeColour(name) {
  const n = parseInt(theme(name).slice(1), 16)
  return [n >> 16, (n >> 8) & 255, n & 255]
}

// setTheme makes the page "dark" or "light".
export function setTheme(name) {
  document.documentElement.dataset.theme = name
  themes = new Map()
}
