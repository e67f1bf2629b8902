// The page: recordings, views, and what moves between them.

import { exported, load } from 'ashlar/data.js'
import { choice, el, message } from 'ashlar/dom.js'
import { bytes, plural, time } from 'ashlar/format.js'
import { Store } from 'ashlar/state.js'
import { Timeline } from 'ashlar/timeline.js'
import { SegmentsView } from 'ashlar/segments.js'
import { HoldersView } from 'ashlar/holders.js'
import { WhatIfView } from 'ashlar/whatif.js'
import { DiffView } from 'ashlar/diff.js'
import { RanksView } from 'ashlar/ranks.js'
import { Details } from 'ashlar/details.js'
import { Search } from 'ashlar/search.js'
import { keys as colourKeys } from 'ashlar/groups.js'
import { keyHelp } from 'ashlar/viewport.js'
import { setTheme } from 'ashlar/palette.js'

// Modules that only others import are named here, too, so that the browser asks for all of them at once.
import 'ashlar/axes.js'
import 'ashlar/bands.js'
import 'ashlar/gl.js'
import 'ashlar/hover.js'
import 'ashlar/lines.js'
import 'ashlar/moments.js'
import 'ashlar/painter.js'
import 'ashlar/plot.js'
import 'ashlar/select.js'

const $ = (id) => document.getElementById(id)

// The views, in the order of their tabs: what one sees there, whether they have the panel of details, and how they are
// made.
const views = {
  memory: {
    name: 'Memory',
    hint: 'Each band is an allocation, as high as its size. Click one for its code; press ? for the keys.',
    details: true,
    timeline: true,
  },
  addresses: {
    name: 'Addresses',
    hint: 'Where blocks lie. Pale areas are reserved and free; point at one to see which blocks hold it.',
    details: true,
    timeline: true,
  },
  state: {
    name: 'State',
    hint: 'Each row is a segment of reserved memory: its parts are blocks, the rest is free. Click a block.',
    details: true,
    make: SegmentsView,
  },
  holders: {
    name: 'Holders',
    hint: 'Who holds the memory at the moment. Click a box for what it called, a row for its blocks over time.',
    make: HoldersView,
  },
  whatif: {
    name: 'What if',
    hint: 'The recorded requests are served again by other allocators or settings, or under another limit.',
    make: WhatIfView,
  },
  diff: { name: 'Difference', hint: 'Who holds more or less memory in another recording.', make: DiffView },
  ranks: { name: 'Ranks', hint: 'All recordings on one scale: such as the ranks of a job.', make: RanksView },
}

// An App is the page.
class App {
  constructor() {
    this.store = new Store()
    this.theme()
    this.tabs()
    this.help()
    this.details = new Details(this.store, $('details'), {
      open: (view, patch) => this.open(view, patch),
      zoom: (id) => this.zoom(id),
    })
    this.search = new Search(this.store, $('search'), $('answers'), {
      open: (view, patch) => this.open(view, patch),
      zoom: (id) => this.zoom(id),
    })
    this.store.onChange((changed) => this.changed(changed))
    addEventListener('keydown', (e) => this.key(e))
  }

  // run follows the recordings of the server: they are read in the background, and live ones grow.
  async run() {
    let version = ''
    for (;;) {
      try {
        const list = await load('api/recordings' + (version === '' ? '' : `?after=${version}`))
        version = list.version
        this.accept(list)
        const reading = list.recordings.some((r) => r.state === 'reading' || r.settling) || list.recordings.length === 0
        if (exported() || (!list.live && !reading)) return
      } catch (e) {
        this.status(e.message)
        if (!this.shown) this.replace(message(e.message, true))
        await new Promise((done) => {
          setTimeout(done, 3000)
        })
      }
    }
  }

  accept(list) {
    const { store } = this
    const before = store.recording
    store.recordings = list.recordings
    store.allocators = list.allocators ?? []
    store.exportLevels = list.export?.levels ?? 1
    const r = store.recording
    this.choices()
    if (!r || r.state !== 'ready') {
      this.wait(r)
      return
    }
    if (!this.shown || before?.id !== r.id) this.show()
    else if (before.generation !== r.generation) {
      this.head()
      this.current?.refresh?.()
      if (views[this.shown].details) this.details.update()
    } else if (['diff', 'ranks'].includes(this.shown)) {
      this.current?.refresh?.()
    }
  }

  // wait shows what a recording lacks until it can be shown.
  wait(r) {
    $('summary').textContent = ''
    if (!r) {
      this.replace(message('Waiting for a recording.'))
      return
    }
    if (r.state === 'failed') {
      this.replace(message(`${r.name} cannot be shown: ${r.error}`, true))
      return
    }
    this.replace(
      el(
        'p',
        { class: 'message' },
        `Reading ${r.name} … `,
        el('progress', { max: 1, value: r.done ?? 0, 'aria-label': `Reading ${r.name}` }),
      ),
    )
  }

  // choices fills the list of recordings.
  choices() {
    const { store } = this
    const options = store.recordings.map((r) => [
      r.id,
      r.name +
        (r.state === 'reading'
          ? ` (reading, ${Math.round(100 * (r.done ?? 0))} %)`
          : r.state === 'failed'
            ? ' (failed)'
            : ''),
    ])
    $('recordings').replaceChildren(
      choice('Recording', options, store.recording?.id, (id) =>
        this.open(undefined, {
          recording: id,
          event: undefined,
          block: undefined,
          from: undefined,
          to: undefined,
          low: undefined,
          high: undefined,
          category: undefined,
          stream: undefined,
          line: undefined,
        }),
      ),
    )
  }

  // head describes the recording.
  head() {
    const r = this.store.recording
    document.title = `${r.name} - ashlar view`
    const parts = [plural(r.events, 'event')]
    if (r.times) parts.push(time(r.duration_us))
    parts.push(`peak ${bytes(r.requested_peak.bytes)} requested`)
    if (r.reserved_known) parts.push(`${bytes(r.reserved_peak.bytes)} reserved`)
    if (r.ooms.length) parts.push(`${plural(r.ooms.length, 'request')} failed for lack of memory`)
    $('summary').textContent = parts.join(' · ')
    $('notes').replaceChildren(...(r.notes ?? []).map((n) => el('li', {}, n)))
    $('notes').hidden = !r.notes?.length
  }

  replace(...children) {
    this.current?.close?.()
    this.current = null
    this.shown = null
    $('view').replaceChildren(...children)
    $('details').hidden = true
  }

  // view returns the name of the view that the state asks for.
  get view() {
    return views[this.store.state.view] ? this.store.state.view : 'memory'
  }

  // show makes the view that the state asks for.
  show() {
    const { store } = this
    const view = this.view
    const r = store.recording
    if (r?.state !== 'ready') {
      this.wait(r)
      return
    }
    this.replace()
    this.shown = view
    this.head()
    for (const tab of $('tabs').children) {
      const selected = tab.dataset.view === view
      tab.setAttribute('aria-selected', String(selected))
      tab.tabIndex = selected ? 0 : -1
    }
    $('view').setAttribute('aria-labelledby', 'tab-' + view)
    const v = views[view]
    $('details').hidden = !v.details
    if (v.timeline) {
      this.bar = el('div', { class: 'bar' })
      const plots = el('div', { class: 'plots' })
      $('view').append(this.bar, plots)
      this.tools()
      this.current = new Timeline(store, plots, view)
      this.current.onStatus = (text) => this.status(text)
      this.current.onLoad = () => this.loaded()
    } else {
      this.current = new v.make(store, $('view'), this)
    }
    if (v.details) this.details.update()
    this.status(v.hint)
  }

  // loaded is called when a picture has its rectangles.
  loaded() {
    if (!this.first) {
      this.first = performance.now()
      document.documentElement.dataset.first = String(Math.round(this.first))
    }
  }

  // tools fills the bar above a picture over time.
  tools() {
    const { store } = this
    const s = store.state
    const bar = this.bar
    const keys = store.recording.stacks ? colourKeys : colourKeys.filter(([k]) => k !== 'line')
    bar.replaceChildren(choice('Colour by', keys, s.colour ?? 'category', (v) => store.set({ colour: v }, true)))
    if (store.recording.times && !exported()) {
      bar.append(
        choice(
          'Across',
          [
            ['event', 'events'],
            ['time', 'time'],
          ],
          s.axis ?? 'event',
          (v) => store.set({ axis: v }, true),
        ),
      )
    }
    bar.append(el('button', { onclick: () => this.reset() }, 'Show everything'))
    const input = el('input', {
      type: 'search',
      value: s.q ?? '',
      placeholder: 'only code with …',
      'aria-label': 'Show only blocks with this text in their stack',
      onchange: () => store.set({ q: input.value || undefined }, true),
    })
    bar.append(input)
    this.chips(bar)
  }

  // chips shows the filters that are set, each with a button that removes it.
  async chips(bar) {
    const { store } = this
    const s = store.state
    const lines = s.line === undefined ? [] : await store.lines()
    const list = [
      ['category', s.category],
      ['stream', s.stream && 'stream ' + s.stream],
      ['line', lines[s.line]],
      ['min', s.min && `at least ${bytes(s.min)}`],
    ]
    for (const [field, text] of list) {
      if (text) {
        bar.append(
          el(
            'button',
            { class: 'chip', title: 'Remove this filter', onclick: () => store.set({ [field]: undefined }, true) },
            `only ${text} ✕`,
          ),
        )
      }
    }
  }

  reset() {
    this.store.set({ from: undefined, to: undefined, low: undefined, high: undefined }, true)
  }

  // open changes the view, and the state with it.
  open(view, patch = {}) {
    this.store.set({ ...(view && { view }), ...patch }, true)
  }

  // zoom shows one block over time, in the view of memory if the present one has no time.
  async zoom(id) {
    if (!views[this.shown]?.timeline) this.open('memory')
    try {
      await this.current.zoomToBlock(id)
    } catch (e) {
      this.status(e.message)
    }
  }

  changed(changed) {
    if (changed.has('view') || changed.has('recording')) {
      this.choices()
      this.show()
      return
    }
    if (!this.current) return
    this.current.update(changed)
    const has = (...fields) => fields.some((f) => changed.has(f))
    if (views[this.shown].timeline && has('colour', 'axis', 'category', 'stream', 'line', 'min', 'q')) this.tools()
    if (views[this.shown].details && has('event', 'block', 'colour', 'category', 'stream', 'line', 'min', 'q'))
      this.details.update()
  }

  status(text) {
    $('status').textContent = text
  }

  // key handles the keys of the whole page.
  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input, select, textarea, dialog')) return
    const digit = '1234567'.indexOf(e.key)
    if (e.key === '?') $('help').showModal()
    else if (e.key === '/') this.search.input.focus()
    else if (e.key === 't') this.toggleTheme()
    else if (e.key === 'm') this.open('state')
    else if (e.key === 'h') this.open('holders')
    else if (e.key === 'Escape' && this.store.state.block !== undefined) this.store.set({ block: undefined }, true)
    else if (digit >= 0) this.open(Object.keys(views)[digit])
    else return
    e.preventDefault()
  }

  tabs() {
    for (const [view, v] of Object.entries(views)) {
      $('tabs').append(
        el(
          'button',
          {
            role: 'tab',
            id: 'tab-' + view,
            'data-view': view,
            'aria-controls': 'view',
            'aria-selected': 'false',
            tabindex: '-1',
            onclick: () => this.open(view),
          },
          v.name,
        ),
      )
    }
    $('tabs').addEventListener('keydown', (e) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key]
      if (!step) return
      const all = [...$('tabs').children]
      const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length]
      next.focus()
      next.click()
      e.preventDefault()
    })
  }

  help() {
    const all = [
      ...keyHelp,
      ['1 … 7', 'the views'],
      ['/', 'search'],
      ['T', 'dark or light'],
      ['Esc', 'deselect the block'],
      ['?', 'these keys'],
    ]
    $('help').append(
      el('h2', {}, 'Keys'),
      el(
        'dl',
        { class: 'facts' },
        all.flatMap(([k, text]) => [el('dt', {}, el('kbd', {}, k)), el('dd', {}, text)]),
      ),
      el(
        'p',
        {},
        'The keys of pictures work when the picture has the focus: click it, or press Tab until it is outlined. ' +
          'Wheel zooms, with Shift it zooms sizes; drag pans, with Shift it zooms to a range. A click selects a block.',
      ),
      el('button', { onclick: () => $('help').close() }, 'Close'),
    )
    $('show-help').addEventListener('click', () => $('help').showModal())
  }

  // theme follows the system until the user chooses.
  theme() {
    const dark = matchMedia('(prefers-color-scheme: dark)')
    const apply = () => {
      let chosen = null
      try {
        chosen = localStorage.getItem('ashlar-theme')
      } catch {
        /* A page from a file may have no storage. */
      }
      setTheme(chosen ?? (dark.matches ? 'dark' : 'light'))
      this.redraw()
    }
    dark.addEventListener('change', apply)
    $('theme').addEventListener('click', () => this.toggleTheme())
    apply()
  }

  toggleTheme() {
    const next = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'
    try {
      localStorage.setItem('ashlar-theme', next)
    } catch {
      /* The choice lasts as long as the page. */
    }
    setTheme(next)
    this.redraw()
  }

  redraw() {
    const { current } = this
    current?.recolour?.()
    current?.draw?.()
    current?.plot?.draw()
    for (const chart of current?.charts ?? []) chart.plot.draw()
  }
}

const app = new App()
app.run()
// For tests, which compare what is drawn with what the server says.
globalThis.ashlarView = app
