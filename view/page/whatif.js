// What-if: the same run under other allocators, settings and limits.

import { exported, has, load } from 'ashlar/data.js'
import { el, message } from 'ashlar/dom.js'
import { bytes, count, time } from 'ashlar/format.js'
import { Chart, Shared } from 'ashlar/lines.js'
import { Timeline } from 'ashlar/timeline.js'
import { Viewport } from 'ashlar/viewport.js'

// A WhatIfView replays the recording on the server and shows the results side by side.
export class WhatIfView {
  constructor(store, parent, app) {
    this.store = store
    this.app = app
    this.charts = []
    this.form = this.makeForm()
    this.progress = el('div', { class: 'bar', role: 'status' })
    this.results = el('div')
    this.cards = el('div', { class: 'cards' })
    this.planBox = el('div')
    parent.append(
      el('div', { class: 'scroll whatif' }, this.form, this.progress, this.results, this.cards, this.planBox),
    )
    this.start()
  }

  close() {
    this.closed = true
    this.abort?.abort()
    this.clear()
    this.timeline?.close()
    if (this.job) load(`api/jobs/${this.job}`, { remove: true }).catch(() => {})
  }

  update(changed) {
    this.timeline?.update(changed)
  }

  refresh() {}

  async start() {
    const r = this.store.recording
    const path = this.store.path('whatif')
    if (exported()) {
      this.form.hidden = true
      if (!has(path)) {
        this.results.replaceChildren(message('Replays are not in this exported page: export with --what-if.'))
        return
      }
      const answer = await load(path)
      this.show(answer.result ?? answer)
      return
    }
    if (!r.what_if) {
      this.form.hidden = true
      this.results.replaceChildren(message(r.what_if_reason || 'This recording cannot be replayed here.'))
      return
    }
    if (this.store.state.specs) this.run()
    else this.progress.append('Choose allocators and press Replay.')
  }

  makeForm() {
    const { store } = this
    const r = store.recording
    const chosen = new Set((store.state.specs ?? 'caching caching:expandable_segments:True').split(' '))
    const suggestions = store.allocators.length ? store.allocators : [{ spec: 'caching', name: 'as recorded' }]
    this.checks = suggestions.map(({ spec }) =>
      el('input', { type: 'checkbox', value: spec, checked: chosen.delete(spec) }),
    )
    this.more = el('input', {
      type: 'text',
      size: 46,
      value: [...chosen].join(' '),
      placeholder: 'caching:garbage_collection_threshold:0.6',
    })
    this.limit = el('input', { type: 'number', min: 0, step: 0.001, value: (store.state.limit ?? 0) / 2 ** 30 })
    this.smallest = el('input', { type: 'checkbox', checked: true })
    this.button = el('button', { type: 'submit' }, 'Replay')
    return el(
      'form',
      {
        class: 'whatif-form',
        onsubmit: (e) => {
          e.preventDefault()
          const specs = [...this.checks.filter((c) => c.checked).map((c) => c.value), ...this.more.value.split(/\s+/)]
          store.set(
            {
              specs: specs.filter(Boolean).join(' '),
              limit: Math.round(this.limit.valueAsNumber * 2 ** 30) || undefined,
            },
            true,
          )
          this.run()
        },
      },
      el('h2', {}, `How would ${r.name} have fared under other settings?`),
      el(
        'fieldset',
        {},
        el('legend', {}, 'Allocators'),
        el(
          'div',
          { class: 'bar' },
          this.checks.map((c, i) => el('label', {}, c, ' ', suggestions[i].name)),
        ),
      ),
      el(
        'div',
        { class: 'bar' },
        el('label', {}, 'Others, separated by spaces ', this.more),
        el('label', {}, 'Memory limit in GiB (0: none) ', this.limit),
        el('label', {}, this.smallest, ' find the smallest limit of each'),
        this.button,
      ),
    )
  }

  async run() {
    const { store } = this
    this.abort?.abort()
    const abort = (this.abort = new AbortController())
    const specs = (store.state.specs ?? '').split(' ').filter(Boolean)
    if (specs.length === 0) {
      this.progress.replaceChildren(message('Choose at least one allocator.', true))
      return
    }
    this.button.disabled = true
    try {
      const post = { specs, limit: store.state.limit ?? 0, smallest: this.smallest.checked }
      const { job } = await load(store.path('whatif'), { post, signal: abort.signal })
      this.job = job
      await this.follow(job, abort.signal)
    } catch (e) {
      if (e.name !== 'AbortError') this.progress.replaceChildren(message(e.message, true))
    }
    this.job = undefined
    this.button.disabled = false
  }

  // follow waits for a job and shows its progress.
  async follow(job, signal) {
    const bar = el('progress', { max: 1, value: 0, 'aria-label': 'Replays done' })
    const stop = el('button', { onclick: () => load(`api/jobs/${job}`, { remove: true }).catch(() => {}) }, 'Stop')
    this.progress.replaceChildren('Replaying ', bar, stop)
    let version = ''
    for (;;) {
      const status = await load(`api/jobs/${job}` + (version === '' ? '' : `?after=${version}`), { signal })
      version = status.version
      bar.value = status.done ?? 0
      if (status.state === 'failed') throw new Error(status.error)
      if (status.state === 'done') {
        this.progress.replaceChildren()
        this.show(status.result)
        return
      }
    }
  }

  clear() {
    for (const chart of this.charts) chart.close()
    this.charts = []
    this.cards.replaceChildren()
  }

  show(result) {
    if (this.closed) return
    this.clear()
    this.results.replaceChildren(this.table(result))
    const shared = (this.shared = new Shared())
    const rows = result.rows.filter((row) => row.curve?.event?.length)
    const high = Math.max(result.limit, ...rows.flatMap((row) => row.curve.reserved)) * 1.06
    const viewport = new Viewport({ x0: -1, x1: this.store.recording.events, y0: 0, y1: high || 1 })
    for (const row of rows) {
      const card = el('div', { class: 'card' })
      this.cards.append(card)
      const x = [...row.curve.event, this.store.recording.events]
      this.charts.push(
        new Chart(card, viewport, {
          name: row.name || row.spec,
          axis: 'event',
          shared,
          curves: [
            { name: 'reserved', x, y: row.curve.reserved, dash: [8, 4] },
            { name: 'allocated', x, y: row.curve.allocated, dash: [] },
          ],
          onpick: (at) => this.app.open('memory', { event: Math.round(at) }),
        }),
      )
    }
    this.cards.dataset.charts = rows.length
    if (!exported()) this.showPlan()
  }

  table(result) {
    const number = (text) => el('td', { class: 'number' }, text)
    const limit = (n) => (n === 0 ? '' : n < 0 ? 'none' : bytes(n))
    return el(
      'table',
      {},
      el(
        'caption',
        {},
        `${result.limit ? `With a limit of ${bytes(result.limit)}. ` : ''}No allocator can do with less than ` +
          `${bytes(result.lower_bound)}.`,
      ),
      el(
        'thead',
        {},
        el(
          'tr',
          {},
          [
            'allocator',
            'reserved peak',
            'over requested',
            'smallest limit',
            'out of memory',
            'driver calls',
            'driver time',
          ].map((t, i) => el('th', { class: i ? 'number' : false, scope: 'col' }, t)),
        ),
      ),
      el(
        'tbody',
        {},
        result.rows.map((row, i) =>
          el(
            'tr',
            { class: i === result.best ? 'chosen' : false, 'data-spec': row.spec },
            el(
              'th',
              { scope: 'row' },
              i === result.best ? '★ ' : '',
              row.name || row.spec,
              i === result.best ? ' (best)' : '',
              row.failure ? el('div', { class: 'grow' }, row.failure) : null,
              (row.notes ?? []).map((n) => el('div', { class: 'summary' }, n)),
            ),
            number(bytes(row.reserved_peak)),
            number(row.waste ? row.waste.toFixed(2) + '×' : ''),
            number(limit(row.smallest_limit)),
            number(row.completed ? count(row.ooms) : `${count(row.ooms)}, stopped`),
            number(count(row.driver_calls)),
            number(time(row.driver_time_us)),
          ),
        ),
      ),
    )
  }

  // showPlan offers the packing of the plan, which is made when it is asked for.
  showPlan() {
    if (this.timeline) return
    const box = el('div', { class: 'plots plan' })
    const button = el(
      'button',
      {
        onclick: () => {
          button.remove()
          this.timeline = new Timeline(this.store, box, 'plan')
        },
      },
      'Show the packing of a plan',
    )
    this.planBox.replaceChildren(
      el('h2', {}, 'Plan: every block at an offset that is computed beforehand'),
      button,
      box,
    )
  }
}
