// Builds the parts of screens: elements, formatted numbers and times, tables, panels. Text is inserted as text, never as
// HTML, because keys and paths are written by strangers.

import { link } from './state.js';

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'css') for (const [key, to] of Object.entries(value)) element.style.setProperty(key, to);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An element: `h('a', { href: '#now' }, 'Now')`. */
export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const svg = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

export function put(element, ...children) {
  element.replaceChildren(...children.flat(9).filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets the text of an element only if it changes, so that screen readers do not read it twice. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Numbers.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const hundredth = new Intl.NumberFormat('en', { maximumFractionDigits: 2 });
const none = '–';
const isMissing = (value) => value === null || value === undefined || !Number.isFinite(value);

export const count = (value) => (isMissing(value) ? none : whole.format(value));
export function rate(value) {
  if (isMissing(value)) return none;
  if (value >= 100) return whole.format(value);
  return value >= 10 || value === 0 ? tenth.format(value) : hundredth.format(value);
}
export function short(value) {
  if (isMissing(value)) return none;
  for (const [unit, of] of [['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
    if (Math.abs(value) >= of) return `${tenth.format(value / of)}${unit}`;
  }
  return rate(value);
}
export function share(value) {
  if (isMissing(value)) return none;
  if (value > 0 && value < 0.001) return '< 0.1 %';
  if (value < 1 && value > 0.999) return '> 99.9 %';
  return `${value < 0.1 || value > 0.99 ? tenth.format(value * 100) : whole.format(value * 100)} %`;
}
export function formatSeconds(value) {
  if (isMissing(value)) return none;
  if (value < 0.001) return `${whole.format(value * 1e6)} µs`;
  if (value < 1) return `${value < 0.01 ? tenth.format(value * 1e3) : whole.format(value * 1e3)} ms`;
  return `${hundredth.format(value)} s`;
}
export function size(value) {
  if (isMissing(value)) return none;
  for (const [unit, of] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 1024]]) {
    if (value >= of) return `${tenth.format(value / of)} ${unit}`;
  }
  return `${whole.format(value)} B`;
}
export function formatDuration(value) {
  if (isMissing(value)) return none;
  const all = [['y', 365 * 86400], ['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const first = all.findIndex(([, of]) => value >= of);
  if (first < 0) return `${tenth.format(value)} s`;
  const [unit, of] = all[first];
  const main = Math.floor(value / of);
  const next = all[first + 1];
  const rest = next && main < 10 ? Math.floor((value % of) / next[1]) : 0;
  return `${main} ${unit}${rest ? ` ${rest} ${next[0]}` : ''}`;
}
export const format = { rate, count, seconds: formatSeconds, bytes: size, share };

// Times.

let utc = localStorage.getItem('tollgate-utc') === '1';
export const inUtc = () => utc;
export function setUtc(to) {
  utc = to;
  localStorage.setItem('tollgate-utc', to ? '1' : '0');
}

const twoDigits = (value) => String(value).padStart(2, '0');
export function parts(at) {
  const date = new Date(at * 1000);
  const of = (name) => (utc ? date[`getUTC${name}`]() : date[`get${name}`]());
  return {
    day: `${of('FullYear')}-${twoDigits(of('Month') + 1)}-${twoDigits(of('Date'))}`,
    clock: `${twoDigits(of('Hours'))}:${twoDigits(of('Minutes'))}:${twoDigits(of('Seconds'))}`,
    millis: String(of('Milliseconds')).padStart(3, '0'),
  };
}
export const clock = (at) => parts(at).clock;
export const fine = (at) => `${parts(at).clock}.${parts(at).millis}`;
export const full = (at) => `${parts(at).day} ${parts(at).clock}`;
/** A span as text, without the day where both ends are today. */
export function between(from, to) {
  const [a, b] = [parts(from), parts(to)];
  const today = parts(Date.now() / 1000).day;
  const first = a.day === today && b.day === today ? a.clock : full(from);
  return `${first} – ${a.day === b.day ? b.clock : full(to)}`;
}

// Parts of screens.

/** A part of a screen with a heading. It shows the errors of its own jobs. */
export function panel(id, title, ...tools) {
  const trouble = h('p', { class: 'trouble', role: 'alert', hidden: true });
  const body = h('div', { class: 'body' });
  const note = h('span', { class: 'note' });
  const heading = h('h2', { id: `${id}-title` }, title);
  const root = h(
    'section',
    { class: 'panel', id, 'aria-labelledby': `${id}-title` },
    h('header', {}, heading, note, h('span', { class: 'tools' }, tools)),
    trouble,
    body,
  );
  return {
    root,
    body,
    note: (text) => setText(note, text),
    rename: (text) => setText(heading, text),
    /** Runs the work that fills the panel, and shows an error if the work fails. */
    async fill(work) {
      try {
        await work();
        trouble.hidden = true;
      } catch (error) {
        if (error.name === 'AbortError') return;
        if (!('status' in error)) console.error(error);
        trouble.hidden = false;
        setText(trouble, `This cannot be shown: ${error.message}`);
      }
    },
    /** A job that fills the panel every `every` seconds; 0 is once for each span. */
    job(every, work) {
      return { every, run: (span, signal) => this.fill(() => work(span, signal)) };
    },
  };
}

/** The text in place of a table without rows. It is hidden until it is known that there are none. */
export const empty = (text) => h('p', { class: 'empty', hidden: true }, text);

/** Reduces values to at most `most`: the highest value of each part, so that no peak is lost. */
function thinned(values, most) {
  if (values.length <= most) return values;
  return Array.from({ length: most }, (_, at) => {
    const some = values.slice(Math.floor((at * values.length) / most), Math.floor(((at + 1) * values.length) / most)).filter((value) => !isMissing(value));
    return some.length ? Math.max(...some) : null;
  });
}

/** A small curve without axes. */
export function spark(all, kind = 'admitted', points = 60) {
  const values = thinned(all, points);
  const most = Math.max(1e-9, ...values.map((value) => value || 0));
  const width = 100 / Math.max(1, values.length - 1);
  let pen = 'M';
  let path = '';
  values.forEach((value, at) => {
    if (isMissing(value)) {
      pen = 'M';
      return;
    }
    path += `${pen}${(at * width).toFixed(1)} ${(19 - (value / most) * 18).toFixed(1)}`;
    pen = 'L';
  });
  const options = { class: `spark ${kind}`, viewBox: '0 0 100 20', preserveAspectRatio: 'none', 'aria-hidden': 'true' };
  return svg('svg', options, svg('path', { d: path }));
}

/** A share as a bar behind its number. */
export function bar(value, kind = 'refused') {
  const inner = h('span', { class: `bar ${kind}`, css: { '--part': `${Math.min(100, Math.max(0, value * 100))}%` } });
  return h('span', { class: 'barred' }, inner, h('span', {}, share(value)));
}

/** The last two parts of the path of a policy file. */
export const shortPath = (path) => (path || '').split('/').slice(-2).join('/');
/** A link to a place in a policy file. */
export const policyLink = (at) => (at ? h('a', { class: 'at', title: at, href: link('policies', { at }) }, shortPath(at)) : none);
/** A key as text, or as a link to the screen of the key. */
export const keyText = (key, linked = false) => h(linked ? 'a' : 'span', { class: 'key', href: linked ? link('keys', { key }) : null }, key || '(everyone together)');

/** Columns that many tables have. */
export const column = {
  limit: { name: 'limit', title: 'Limit', cell: (row) => row.limit || '', sort: (row) => row.limit },
  key: { name: 'key', title: 'Key', cell: (row) => keyText(row.key) },
  refused: { name: 'count', title: 'Refused', n: true, cell: (row) => count(row.count) },
  promise: { name: 'promise', title: 'Promise', wide: true, cell: (row) => `${row.guarantee || none}${row.try ? ' (try)' : row.shadow ? ' (shadow)' : ''}` },
  at: { name: 'at', title: 'Written at', wide: true, cell: (row) => policyLink(row.at) },
};

/** The mark of each outcome, which is shown with a colour and a word. */
export const MARKS = { admitted: '●', within: '●', over: '▲', refused: '■', shed: '◆', failed: '✕', gone: '○', rejected: '▬', denied: '▬', banned: '▬', shadow_refused: '□', try_refused: '□', usage: '◇' };
export function outcome(word) {
  const mark = h('span', { class: 'mark', 'aria-hidden': 'true' }, MARKS[word] || '·');
  return h('span', { class: `outcome ${word in MARKS ? word : ''}` }, mark, ` ${(word || none).replace('_', ' ')}`);
}

/** A table whose rows keep their elements when the data changes. A column is { name, title, cell(row), sort(row) }. `n` is
 * for numbers, `wide` for columns that narrow screens leave out, `quiet` for a title that only screen readers read. */
export function table(label, columns, { key, href, sort, down = true, onSort } = {}) {
  let by = sort;
  let falling = down;
  let rows = [];
  const kept = new Map();
  const body = h('tbody');
  const heads = columns.map((column) => {
    const text = sort && column.sort
      ? h('button', { type: 'button', onclick: () => turn(column.name) }, column.title)
      : h('span', { class: column.quiet ? 'hidden' : null }, column.title);
    return h('th', { scope: 'col', class: `${column.n ? 'n ' : ''}${column.wide ? 'wide' : ''}`, title: column.hint }, text);
  });
  const root = h(
    'div',
    { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `${label}, table` },
    h('table', {}, h('thead', {}, h('tr', {}, heads)), body),
  );
  root.hidden = true;

  function turn(name) {
    falling = by === name ? !falling : true;
    by = name;
    onSort?.(by, falling);
    draw();
  }
  function draw() {
    const sorter = columns.find((one) => one.name === by)?.sort;
    if (sorter) {
      const less = (a, b) => (a === b ? 0 : a > b || b === null || b === undefined ? 1 : -1);
      rows = [...rows].sort((a, b) => less(sorter(a), sorter(b)) * (falling ? -1 : 1));
    }
    heads.forEach((head, at) => {
      if (columns[at].name === by) head.setAttribute('aria-sort', falling ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    const order = rows.map((row, at) => line(row, key ? key(row) : at));
    const alive = new Set(order);
    for (const [name, known] of kept) if (!alive.has(known.element)) kept.delete(name);
    order.forEach((element, at) => {
      if (body.children[at] !== element) body.insertBefore(element, body.children[at] || null);
    });
    while (body.children.length > order.length) body.lastElementChild.remove();
  }
  function line(row, name) {
    const known = kept.get(name);
    if (known?.row === row) return known.element;
    const element = known?.element || h('tr');
    kept.set(name, { element, row });
    const to = href?.(row);
    const cells = columns.map((column, at) => {
      let content = column.cell(row);
      if (at === 0 && to) content = h('a', { href: to, class: 'row' }, content);
      return h(at ? 'td' : 'th', { scope: at ? null : 'row', class: `${column.n ? 'n ' : ''}${column.wide ? 'wide' : ''}` }, content);
    });
    // The cell that has the focus keeps its element.
    if (element.contains(document.activeElement)) {
      const focused = [...element.children].findIndex((cell) => cell.contains(document.activeElement));
      cells.forEach((cell, at) => {
        if (at !== focused) element.children[at]?.replaceWith(cell);
      });
    } else element.replaceChildren(...cells);
    return element;
  }
  return {
    root,
    set(to, otherwise) {
      rows = to;
      draw();
      root.hidden = !to.length;
      if (otherwise) {
        otherwise.hidden = to.length > 0;
      }
    },
    sorted: () => rows,
  };
}

/** A button that copies a text to the clipboard, and shows on itself that it did. */
export function copier(title, id, text) {
  const button = h('button', { type: 'button', id }, title);
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text());
      setText(button, 'Copied');
    } catch {
      // Without permission to write to the clipboard, the text is shown to be copied by hand.
      const area = h('textarea', { readonly: true, rows: 8, 'aria-label': title, class: 'bytext' });
      area.value = text();
      button.closest('section').append(area);
      area.select();
    }
    setTimeout(() => setText(button, title), 2000);
  });
  return button;
}
