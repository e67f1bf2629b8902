// Groups of blocks: what a picture is coloured by, and their legend.

import { eventOf, load } from 'ashlar/data.js'
import { el, message, swatch } from 'ashlar/dom.js'
import { bytes } from 'ashlar/format.js'
import { ageColour, css, groupColour } from 'ashlar/palette.js'

// The keys by which pictures are coloured.
export const keys = [
  ['category', 'category'],
  ['line', 'line'],
  ['stream', 'stream'],
  ['age', 'age'],
]

// colourer returns the function that gives the colour of rectangle i of an answer, by a key.
export function colourer(key, data, recording, lines) {
  switch (key) {
    case 'line':
      return (i) => lineColour(lines, data.line[i])
    case 'stream':
      return (i) => groupColour('', data.stream[i])
    case 'age':
      return (i) => ageColour(age(data.start[i], recording.events))
  }
  return (i) => groupColour(recording.categories[data.category[i]], data.category[i])
}

// age returns how old a block is at the end, as a part of the recording.
function age(start, events) {
  return 1 - (eventOf(start) + 1) / Math.max(events, 1)
}

function lineColour(lines, index) {
  return groupColour(lines[index] ?? '', index)
}

// colourOfGroup returns the colour of a group by its label.
export function colourOfGroup(key, label, recording, lines) {
  switch (key) {
    case 'line':
      return lineColour(lines, lines.indexOf(label))
    case 'stream':
      return groupColour('', Math.max(0, recording.streams.indexOf(label)))
  }
  return groupColour(label, Math.max(0, recording.categories.indexOf(label)))
}

// filterOf returns the part of the state that selects a group.
function filterOf(key, label, lines) {
  return key === 'line' ? { line: lines.indexOf(label) } : { [key]: label }
}

// A Legend lists the groups at a moment with their bytes. A click shows one group alone.
export class Legend {
  constructor(store) {
    this.store = store
    this.element = el('section', { 'aria-label': 'Legend' })
  }

  async update(signal) {
    const { store } = this
    const key = store.state.colour ?? 'category'
    if (key === 'age') {
      this.element.replaceChildren(
        el('h2', {}, 'Age'),
        el(
          'ul',
          { class: 'legend' },
          [
            ['allocated late', 0],
            ['allocated halfway', 0.5],
            ['allocated early', 1],
          ].map(([text, part]) => el('li', { class: 'bar' }, swatch(css(ageColour(part))), text)),
        ),
      )
      return
    }
    const event = store.listed
    const recording = store.recording
    if (key === 'category' && recording.settling) {
      this.element.replaceChildren(message('The categories of the blocks are being inferred.'))
      return
    }
    const [lines, answer] = await Promise.all([
      store.lines(),
      load(store.path('holders', { event, by: key }), { signal }),
    ])
    const shown = answer.holders.slice(0, 40)
    const items = shown.map((h) => this.item(key, h, recording, lines))
    const others = answer.bytes - shown.reduce((sum, h) => sum + h.bytes, 0)
    // The colours of categories are explained also if none of their blocks is active at the moment.
    const absent = key === 'category' ? recording.categories.filter((c) => !shown.some((h) => h.values[0] === c)) : []
    items.push(...absent.map((c) => this.item(key, { values: [c], bytes: 0 }, recording, lines)))
    if (others > 0) items.push(el('li', { class: 'bar' }, el('span', { class: 'label' }, 'others'), bytes(others)))
    this.element.replaceChildren(
      el('h2', {}, `By ${key}: ${bytes(answer.bytes)}`),
      el('ul', { class: 'legend' }, items),
    )
  }

  item(key, holder, recording, lines) {
    const { store } = this
    const label = holder.values[0]
    const parts = [
      swatch(css(colourOfGroup(key, label, recording, lines))),
      el('span', { class: 'label' }, label || '(none)'),
      el('span', { class: 'bytes' }, bytes(holder.bytes)),
    ]
    const filter = filterOf(key, label, lines)
    if (filter.line < 0) return el('li', { class: 'bar' }, parts) // it is no line: the block has no stack
    const field = Object.keys(filter)[0]
    const pressed = store.state[field] === filter[field]
    return el(
      'li',
      {},
      el(
        'button',
        {
          'aria-pressed': String(pressed),
          title: pressed ? 'Show all groups' : 'Show this group alone',
          onclick: () => store.set(pressed ? { [field]: undefined } : filter, true),
        },
        parts,
      ),
    )
  }
}
