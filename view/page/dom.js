// Making elements. Texts of a recording reach the page only as text nodes and attributes, never as HTML.

// el makes an element with attributes and children. A child that is a string becomes text. An attribute whose name
// begins with "on" is a listener; false and null leave an attribute out.
export function el(name, attributes = {}, ...children) {
  const e = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue
    if (key.startsWith('on')) e.addEventListener(key.slice(2), value)
    else e.setAttribute(key, value === true ? '' : value)
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined))
  return e
}

// facts makes a list of terms and values: [[term, value], ...]. Pairs without a value are left out.
export function facts(pairs) {
  const list = el('dl', { class: 'facts' })
  for (const [term, value] of pairs) {
    if (value === '' || value === null || value === undefined) continue
    list.append(el('dt', {}, term), el('dd', {}, value))
  }
  return list
}

// choice makes a select element with a label: options are [value, text].
export function choice(label, options, value, onchange) {
  const select = el(
    'select',
    { 'aria-label': label, onchange: () => onchange(select.value) },
    options.map(([v, text]) => el('option', { value: v, selected: v === value }, text)),
  )
  return el('label', {}, label + ' ', select)
}

// swatch makes a small square of a colour.
export function swatch(colour) {
  const s = el('span', { class: 'swatch', 'aria-hidden': 'true' })
  s.style.background = colour
  return s
}

// message makes a paragraph for what cannot be shown.
export function message(text, bad) {
  return el('p', { class: bad ? 'message bad' : 'message', role: bad ? 'alert' : false }, text)
}
