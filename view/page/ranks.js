// The recordings of one job as small multiples, with one scale and linked cursors.

import { exported, load } from 'ashlar/data.js'
import { el, message } from 'ashlar/dom.js'
import { bytes } from 'ashlar/format.js'
import { Chart, Shared } from 'ashlar/lines.js'
import { Viewport } from 'ashlar/viewport.js'

// A RanksView shows every recording that is ready.
export class RanksView {
  constructor(store, parent, app) {
    this.store = store
    this.app = app
    this.charts = []
    this.summary = el('div', { class: 'bar' })
    this.cards = el('div', { class: 'cards' })
    parent.append(this.summary, this.cards)
    this.load()
  }

  close() {
    this.closed = true
    this.abort?.abort()
    for (const chart of this.charts) chart.close()
  }

  update() {}

  refresh() {
    this.load()
  }

  async load() {
    this.abort?.abort()
    const abort = (this.abort = new AbortController())
    for (const chart of this.charts) chart.close()
    this.charts = []
    this.cards.replaceChildren()
    const ready = this.store.recordings.filter((r) => r.state === 'ready')
    const peaks = ready.map((r) => r.requested_peak.bytes)
    const [low, high] = [Math.min(...peaks), Math.max(...peaks)]
    const highest = ready.find((r) => r.requested_peak.bytes === high)
    this.summary.replaceChildren(
      el(
        'h2',
        {},
        ready.length === 1
          ? `One recording, with a peak of ${bytes(high)}`
          : `${ready.length} recordings: peaks from ${bytes(low)} to ${bytes(high)}, the highest in ${highest?.name}`,
      ),
    )
    const top = Math.max(...ready.map((r) => Math.max(r.requested_peak.bytes, r.reserved_peak?.bytes ?? 0))) * 1.06
    const viewport = new Viewport({ x0: 0, x1: 100, y0: 0, y1: top })
    const shared = new Shared()
    for (const r of ready) {
      const card = el(
        'section',
        { class: 'card', 'data-recording': r.id },
        el(
          'header',
          { class: 'bar' },
          el('h3', {}, r.name),
          el('span', { class: 'space' }),
          el(
            'span',
            { class: 'summary' },
            `peak ${bytes(r.requested_peak.bytes)}` + (r.ooms.length ? `, ${r.ooms.length} out of memory` : ''),
          ),
          el(
            'button',
            { onclick: () => this.app.open('memory', { recording: r.id, event: undefined, block: undefined }) },
            'Open',
          ),
        ),
      )
      this.cards.append(card)
      try {
        await this.chart(r, card, viewport, shared, abort.signal)
      } catch (e) {
        if (e.name === 'AbortError' || this.closed) return
        card.append(message(e.message, true))
      }
    }
    this.cards.dataset.charts = this.charts.length
  }

  // chart draws one recording, its events as percents so that ranks with other numbers of events line up.
  async chart(r, card, viewport, shared, signal) {
    const id = encodeURIComponent(r.id)
    const query = exported() ? 'tile=0.0' : `axis=event&from=-1&to=${r.events}&width=600&height=8`
    const d = await load(`api/r/${id}/memory?${query}`, { signal })
    if (this.closed || signal.aborted) return
    const n = d.header.columns
    const x = Array.from({ length: n + 1 }, (_, i) => (100 * i) / n)
    const curves = [{ name: 'requested', x, y: d.requested, dash: [] }]
    if (r.reserved_known) curves.push({ name: 'reserved', x, y: d.reserved, dash: [8, 4] })
    this.charts.push(
      new Chart(card, viewport, {
        name: '',
        axis: 'percent',
        shared,
        curves,
        onpick: (at) =>
          this.app.open('memory', { recording: r.id, event: Math.round((at / 100) * r.events), block: undefined }),
      }),
    )
  }
}
