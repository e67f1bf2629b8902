// The choice of a moment.

import { el } from 'ashlar/dom.js'
import { count } from 'ashlar/format.js'

// momentName returns the name of a moment of a recording for people: "out of memory" for "oom:1".
export function momentName(recording, name) {
  const number = /^oom:(\d+)$/.exec(name)?.[1]
  if (!number) return name
  return recording.ooms.length > 1 ? `out of memory ${number}` : 'out of memory'
}

// momentBar makes the controls of the moment: named moments, and the number of an event with steps to its neighbours.
export function momentBar(store) {
  const r = store.recording
  const named = [
    ...r.moments.map((m) => [momentName(r, m.name), m.event]),
    ...(r.steps?.list ?? []).slice(0, 200).map((s) => [`start of step ${s.number}`, s.first]),
  ]
  const event = store.event
  const known = named.findIndex(([, e]) => e === event)
  const select = el(
    'select',
    {
      'aria-label': 'Moment',
      onchange: () => store.set({ event: Number(select.value) }, true),
    },
    known < 0 ? el('option', { value: event, selected: true }, `event ${count(event)}`) : null,
    named.map(([name, e], i) => el('option', { value: e, selected: i === known }, name)),
  )
  const input = el('input', {
    type: 'number',
    min: -1,
    max: r.events - 1,
    value: event,
    'aria-label': 'Event',
    onchange: () => store.set({ event: Math.min(Math.max(Number(input.value), -1), r.events - 1) }, true),
  })
  const go = (by) => store.set({ event: Math.min(Math.max(event + by, -1), r.events - 1) })
  return el(
    'span',
    { class: 'bar' },
    el('label', {}, 'Moment ', select),
    el('label', {}, 'event ', input),
    el('button', { 'aria-label': 'Previous event', onclick: () => go(-1) }, '‹'),
    el('button', { 'aria-label': 'Next event', onclick: () => go(1) }, '›'),
  )
}
