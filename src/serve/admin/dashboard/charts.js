// Charts over time: lines with a band of the minima and maxima of single seconds, and gaps where nothing was recorded. The
// last bucket is hollow while it fills, reloads are vertical lines, an earlier period is dashed. Mouse and keyboard can do
// the same.

import { h, svg, put, setText, format, short, clock, full, parts, inUtc, MARKS, formatSeconds, size, formatDuration } from './ui.js';
import { runAround } from './api.js';
import { explainLink, zoom, back, pan } from './state.js';

const uPlot = globalThis.uPlot;
const DASHES = { over: [7, 4], shed: [2, 3], failed: [9, 3, 2, 3], before: [4, 4], p95: [7, 4], p50: [2, 3] };
const announcer = document.getElementById('said');
const probe = document.getElementById('shade');
const all = new Set();
let shades = {};
/** The chart on which the mouse was pressed. The other charts only show the same selection. */
let pressedChart = null;

/** The value of a colour, by its name in the style sheet. */
function shade(name) {
  if (!shades[name]) {
    probe.style.setProperty('color', `var(--${name})`);
    shades[name] = getComputedStyle(probe).color;
  }
  return shades[name];
}

/** Draws all charts again after the colours have changed. */
export function recolour() {
  shades = {};
  for (const chart of all) chart.plot?.redraw(false);
}

function faint(name, part) {
  return shade(name).replace(/^rgba?\(([^/)]*)\)$/, `rgba($1, ${part / 100})`);
}

export class Chart {
  /** `unit` is a name in `format`. `run()` returns the values of which a click explains a run; null if a click does nothing. */
  constructor({ id, label, unit = 'rate', height = 180, sync = 'screen', run = null, showsEvents = false }) {
    Object.assign(this, { id, label, unit, height, sync, run, showsEvents });
    this.onlyLine = null;
    this.signature = '';
    this.legend = h('div', { class: 'legend', role: 'group', 'aria-label': `Lines of ${label}` });
    this.area = h('div', {
      class: 'plot',
      tabindex: '0',
      role: 'application',
      'aria-roledescription': 'chart',
      'aria-label': `${label}. Arrow keys read values${run ? ', Enter explains' : ''}, plus and minus zoom.`,
    });
    this.area.style.setProperty('min-height', `${height}px`);
    this.marks = h('div', { class: 'marks' });
    this.figures = h('div', { class: 'figures', hidden: true, tabindex: '0', role: 'region', 'aria-label': `Table of ${label}` });
    this.toggle = h('button', { type: 'button', class: 'astable', 'aria-pressed': 'false' }, 'Table');
    this.toggle.addEventListener('click', () => this.showTable(this.figures.hidden));
    this.root = h('div', { class: 'chart', id }, this.legend, this.area, this.figures);
    this.area.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.resize()).observe(this.area);
    all.add(this);
  }

  /** The number of buckets that the chart has space for. */
  bucketCount() {
    const width = this.area.clientWidth || this.root.clientWidth || window.innerWidth - 60;
    return Math.max(60, Math.round(width / 1.5 / 20) * 20 + 4);
  }

  destroy() {
    all.delete(this);
    this.plot?.destroy();
    this.plot = null;
  }

  /** Draws lines over the buckets of `range`. A line is { key, label, colour, y, low, high, dash }. */
  draw(range, lines, { span, before = null, events, selected = null } = {}) {
    Object.assign(this, { range, events: events || [], selected, span });
    this.lines = before ? [...lines, { key: 'before', label: before.label, colour: 'before', y: before.y }] : lines;
    const count = range.covered.length;
    this.x = range.covered.map((_, at) => range.from + at * range.step);
    const last = range.covered[count - 1];
    this.open = Boolean(span?.live && last > 0 && last < range.step);
    const data = [this.x];
    const rows = [];
    for (const one of this.lines) {
      if (one.high) {
        data.push(one.high, one.low);
        rows.push([one, 'high'], [one, 'low']);
      }
      data.push(this.open && one.key !== 'before' ? one.y.map((value, at) => (at === count - 1 ? null : value)) : one.y);
      rows.push([one, 'y']);
    }
    const signature = rows.map(([one, list]) => `${one.key}/${one.label}/${list}`).join();
    this.rows = rows;
    if (signature !== this.signature || !this.plot) this.build(data, signature);
    else this.plot.setData(data, false);
    this.plot.batch(() => this.plot.setScale('x', this.bounds()));
    this.plot.redraw(false, true);
    this.markers();
    this.readout();
    if (!this.figures.hidden) this.fillTable();
  }

  bounds() {
    const [first, last] = [this.x[0], this.x[this.x.length - 1]];
    return { min: this.span ? Math.max(first, this.span.from) : first, max: Math.max(last, first + 1) };
  }

  shown(one) {
    return this.onlyLine === null || this.onlyLine === one.key;
  }

  top() {
    let most = 0;
    for (const one of this.lines) {
      if (!this.shown(one)) continue;
      for (const list of [one.high || one.y, one.y]) for (const value of list) if (value > most) most = value;
    }
    return most;
  }

  build(data, signature) {
    this.plot?.destroy();
    this.signature = signature;
    const series = [{}];
    const bands = [];
    for (const [one, list] of this.rows) {
      const name = one.colour;
      const show = this.shown(one);
      if (list === 'y') {
        const width = one.width || (one.key === 'refused' ? 2 : 1.5);
        const dash = one.dash || DASHES[one.key];
        series.push({ label: one.label, show, stroke: () => shade(name), width, dash, points: { show: false }, spanGaps: false });
      } else {
        series.push({ show, stroke: 'transparent', width: 0, points: { show: false }, spanGaps: false });
        const at = series.length - 1;
        if (list === 'low') bands.push({ series: [at - 1, at], fill: () => faint(name, 18) });
      }
    }
    const grid = { stroke: () => shade('grid'), width: 1 };
    const axis = { stroke: () => shade('muted'), grid, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    const words = { rate: short, count: short, seconds: formatSeconds, bytes: size, share: format.share }[this.unit];
    const options = {
      width: Math.max(120, this.area.clientWidth),
      height: this.height,
      tzDate: (at) => (inUtc() ? uPlot.tzDate(new Date(at * 1000), 'Etc/UTC') : new Date(at * 1000)),
      padding: [10, 24, 0, 0],
      legend: { show: false },
      scales: { x: { time: true }, y: { range: () => [0, this.top() * 1.08 || 1] } },
      series,
      bands,
      axes: [
        { ...axis, size: 26, gap: 7, space: 70, values: (u, at) => at.map((value) => formatTick(value, u.scales.x)).map((text, index, list) => (text === list[index - 1] ? '' : text)) },
        { ...axis, size: 54, space: 34, ...(this.unit === 'bytes' && { incrs: Array.from({ length: 40 }, (_, at) => 2 ** at) }), values: (u, at) => at.map((value) => words(value)) },
      ],
      cursor: {
        y: false,
        sync: { key: this.sync, scales: ['x', null] },
        drag: { x: true, y: false, setScale: false, dist: 6 },
        points: { size: 6 },
      },
      hooks: { setSelect: [(u) => this.picked(u)], setCursor: [() => this.readout()], draw: [(u) => this.drawAbove(u)], drawClear: [(u) => this.drawBeneath(u)] },
    };
    this.plot = new uPlot(options, data, this.area);
    const over = this.plot.over;
    over.addEventListener('mousedown', (event) => {
      this.pressed = event.clientX;
      pressedChart = this;
      if (!event.shiftKey) return;
      // The drag moves the span instead of selecting a part of it, so uPlot must not see the event.
      event.stopImmediatePropagation();
      document.addEventListener('mouseup', (up) => {
        const by = (this.pressed - up.clientX) / over.clientWidth;
        if (Math.abs(by) > 0.02) pan(by);
      }, { once: true });
    }, true);
    over.addEventListener('click', (event) => {
      if (Math.abs(event.clientX - (this.pressed ?? event.clientX)) > 5 || event.shiftKey) return;
      clearTimeout(this.waiting);
      const at = this.plot.posToIdx(event.clientX - over.getBoundingClientRect().left);
      // A second click would make a double click, which goes back, so the first one waits a moment.
      if (event.detail < 2) this.waiting = setTimeout(() => this.explain(at), 220);
    });
    over.addEventListener('dblclick', () => {
      clearTimeout(this.waiting);
      back();
    });
    this.area.append(this.marks);
    this.legends();
  }

  resize() {
    const width = this.area.clientWidth;
    if (this.plot && width > 0 && Math.abs(width - this.plot.width) > 1) {
      this.plot.setSize({ width, height: this.height });
      this.markers();
    }
  }

  picked(u) {
    const { left, width } = u.select;
    if (width < 6) return;
    const [from, to] = [u.posToVal(left, 'x'), u.posToVal(left + width, 'x')];
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    if (pressedChart === this) zoom(from, to);
  }

  explain(at) {
    if (!this.run || at === null || at === undefined) return;
    const [first, last] = runAround(this.run(), at);
    const [from, to] = [this.x[first], this.x[last] + this.range.step];
    location.hash = explainLink(from, to);
  }

  key(event) {
    if (!this.plot || event.altKey || event.ctrlKey || event.metaKey) return;
    const last = this.x.length - 1;
    const at = this.plot.cursor.idx ?? last + (event.key === 'ArrowLeft' ? 1 : 0);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0, End: last }[event.key];
    if (event.shiftKey && to !== undefined) pan(event.key === 'ArrowLeft' ? -0.25 : 0.25);
    else if (to !== undefined) {
      const next = Math.max(0, Math.min(last, to));
      this.plot.setCursor({ left: this.plot.valToPos(this.x[next], 'x'), top: this.height / 3 });
      this.announce(next);
    } else if (event.key === 'Enter') this.explain(this.plot.cursor.idx ?? last);
    else if (event.key === '+' || event.key === '=') {
      const { min, max } = this.plot.scales.x;
      const middle = this.x[this.plot.cursor.idx ?? Math.floor(last / 2)];
      zoom(middle - (max - min) / 4, middle + (max - min) / 4);
    } else if (event.key === '-') {
      const { min, max } = this.plot.scales.x;
      zoom(min - (max - min) / 2, Math.min(max + (max - min) / 2, Date.now() / 1000));
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  announce(at) {
    const each = this.lines.filter((one) => this.shown(one)).map((one) => `${one.label} ${format[this.unit](one.y[at])}`);
    const partly = this.open && at === this.x.length - 1 ? ', not yet complete' : '';
    setText(announcer, this.range.covered[at] ? `${clock(this.x[at])}: ${each.join(', ')}${partly}` : `${clock(this.x[at])}: nothing was recorded`);
  }

  legends() {
    this.values = new Map();
    const button = (one) => {
      const value = h('b', {});
      this.values.set(one, value);
      const dash = (one.dash || DASHES[one.key] || []).join(' ');
      const swatch = svg('svg', { class: 'swatch', viewBox: '0 0 24 10', 'aria-hidden': 'true' }, svg('path', { d: 'M0 5H24', 'stroke-dasharray': dash }));
      swatch.style.setProperty('color', `var(--${one.colour})`);
      const mark = MARKS[one.key] && h('i', { class: 'mark', 'aria-hidden': 'true', css: { color: `var(--${one.colour})` } }, MARKS[one.key]);
      const press = () => {
        this.onlyLine = this.onlyLine === one.key ? null : one.key;
        this.build(this.plot.data, this.signature);
        this.draw(this.range, this.lines.filter((known) => known.key !== 'before'), {
          span: this.span, events: this.events, selected: this.selected,
          before: this.lines.find((known) => known.key === 'before'),
        });
      };
      const only = this.onlyLine === one.key;
      return h('button', { type: 'button', class: this.shown(one) ? '' : 'off', 'aria-pressed': String(only), title: `Show only ${one.label}`, onclick: press }, swatch, mark, h('span', {}, one.label), value);
    };
    this.when = h('time', {});
    put(this.legend, this.lines.map(button), this.when, this.toggle);
  }

  readout() {
    if (!this.plot || !this.values) return;
    const pointed = this.plot.cursor.idx;
    const count = this.x.length;
    const at = pointed ?? (this.open && count > 1 ? count - 2 : count - 1);
    const now = [...this.values.keys()];
    this.lines.forEach((one, index) => {
      const value = this.values.get(now[index]);
      if (value) setText(value, format[this.unit](one.y[at]));
    });
    const step = this.range.step > 1 ? ` + ${formatDuration(this.range.step)}` : '';
    setText(this.when, pointed === null || pointed === undefined ? '' : `${this.range.step >= 3600 ? full(this.x[at]) : clock(this.x[at])}${step}`);
  }

  /** Draws beneath the lines: the selected span. */
  drawBeneath(u) {
    if (!this.selected) return;
    const { left, top, width, height } = u.bbox;
    const [a, b] = this.selected.map((at) => Math.max(left, Math.min(left + width, u.valToPos(at, 'x', true))));
    u.ctx.fillStyle = faint('accent', 13);
    u.ctx.fillRect(a, top, Math.max(2, b - a), height);
  }

  /** Draws above the lines: reloads, and the bucket that still fills. */
  drawAbove(u) {
    const { ctx } = u;
    const ratio = window.devicePixelRatio || 1;
    const { top, height } = u.bbox;
    ctx.save();
    ctx.lineWidth = ratio;
    ctx.strokeStyle = shade('event');
    ctx.setLineDash([2 * ratio, 3 * ratio]);
    for (const event of this.visible()) {
      const x = Math.round(u.valToPos(event.at, 'x', true));
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + height);
      ctx.stroke();
    }
    if (this.open) this.hollow(u, ratio);
    ctx.restore();
  }

  hollow(u, ratio) {
    const at = this.x.length - 1;
    for (const one of this.lines) {
      if (!this.shown(one) || one.key === 'before' || one.y[at] === null) continue;
      const place = (index) => [u.valToPos(this.x[index], 'x', true), u.valToPos(one.y[index], 'y', true)];
      const [x, y] = place(at);
      u.ctx.strokeStyle = faint(one.colour, 55);
      u.ctx.lineWidth = ratio * 1.2;
      u.ctx.setLineDash([2 * ratio, 2 * ratio]);
      if (at > 0 && one.y[at - 1] !== null) {
        u.ctx.beginPath();
        u.ctx.moveTo(...place(at - 1));
        u.ctx.lineTo(x, y);
        u.ctx.stroke();
      }
      u.ctx.setLineDash([]);
      u.ctx.beginPath();
      u.ctx.arc(x - 1.5 * ratio, y, 2.6 * ratio, 0, 7);
      u.ctx.fillStyle = shade('panel');
      u.ctx.fill();
      u.ctx.strokeStyle = shade(one.colour);
      u.ctx.stroke();
    }
  }

  visible() {
    const { min, max } = this.plot?.scales.x || {};
    return this.events.filter((event) => event.at >= min && event.at <= max);
  }

  /** Adds a link for each reload, which can be pointed at and reached by keyboard. */
  markers() {
    if (!this.showsEvents) return;
    const names = { started: '▶', stopped: '■', reloaded: '↻', reload_failed: '!' };
    const known = this.visible();
    const sign = known.map((event) => event.at).join() + this.plot.width;
    const place = () => [...this.marks.children].forEach((mark, at) => mark.style.setProperty('left', `${this.plot.valToPos(known[at].at, 'x') + this.plot.over.offsetLeft}px`));
    if (sign !== this.marked) {
      this.marked = sign;
      put(this.marks, known.map((event) => {
        const text = describeEvent(event);
        return h('a', { class: `event ${event.event}`, href: explainLink(event.at - 30, event.at + 120), title: text, 'aria-label': `${text}. Explain what followed` }, names[event.event] || '•');
      }));
    }
    place();
  }

  showTable(shown) {
    this.figures.hidden = !shown;
    this.area.hidden = shown;
    this.toggle.setAttribute('aria-pressed', String(shown));
    this.filled = 0;
    if (shown) this.fillTable();
    else this.resize();
  }

  fillTable() {
    if (performance.now() - (this.filled || -1e9) < 4000 || !this.range) return;
    this.filled = performance.now();
    const head = h('tr', {}, h('th', { scope: 'col' }, this.range.step > 1 ? `From, ${this.range.step} s each` : 'Second'), this.lines.map((one) => h('th', { scope: 'col', class: 'n' }, one.label)));
    const each = this.x.map((at, index) => {
      const cells = this.lines.map((one) => h('td', { class: 'n' }, this.range.covered[index] ? format[this.unit](one.y[index]) : 'gap'));
      return h('tr', {}, h('th', { scope: 'row' }, full(at)), cells);
    });
    put(this.figures, h('table', {}, h('caption', {}, this.label), h('thead', {}, head), h('tbody', {}, each.reverse())));
  }
}

/** An event of the gateway as words. */
export function describeEvent(event) {
  const word = { started: 'started', stopped: 'stopped', reloaded: 'reloaded', reload_failed: 'reload failed', ban_lifted: 'ban lifted', ban_ended: 'ban ended' }[event.event] || event.event;
  const changes = (event.changes || []).map((change) => `${change.limit} ${change.before ?? 'new'} → ${change.after ?? 'gone'}`);
  return `${clock(event.at)} ${word}${event.detail ? `: ${event.detail}` : ''}${changes.length ? ` (${changes.join('; ')})` : ''}`;
}

function formatTick(at, { min, max }) {
  const { day, clock: time } = parts(at);
  if (max - min > 4 * 86400) return day.slice(max - min > 300 * 86400 ? 0 : 5, max - min > 300 * 86400 ? 7 : 10);
  if (max - min > 86400 && time === '00:00:00') return day.slice(5);
  return max - min > 1200 ? time.slice(0, 5) : time;
}

