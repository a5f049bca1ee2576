// What is looked at: the screen, its span of time, what it is compared with. All of it lives in the
// address after `#`, so that a link shows somebody else the same. Nothing is kept on the gateway.

export const SCREENS = ['now', 'throttles', 'routes', 'keys', 'policies', 'tail', 'health'];
const UNITS = { s: 1, m: 60, h: 3600, d: 86400, w: 604800, y: 365 * 86400 };
const SHIFTS = { day: 86400, week: 604800 };
const EVERYWHERE = ['last', 'from', 'to', 'cmp'];

let second = 0;
let heard = 0;
const zooms = [];

/** The gateway says which second can be asked for. */
export function tell(at) {
  second = at;
  heard = performance.now();
}

/** The second behind the last one that can be asked for. */
export function now() {
  if (!second) return Math.floor(Date.now() / 1000);
  return second + 1 + Math.max(0, Math.floor((performance.now() - heard - 500) / 1000));
}

export function seconds(text) {
  const found = /^(\d+)([smhdwy])$/.exec(text || '');
  return found ? Number(found[1]) * UNITS[found[2]] : null;
}

function parsed() {
  const [screen, query] = location.hash.replace(/^#/, '').split('?');
  return {
    screen: SCREENS.includes(screen) ? screen : 'now',
    query: new URLSearchParams(query || ''),
  };
}

export const screen = () => parsed().screen;
export const param = (name) => parsed().query.get(name);

/** The span that the address names. `live` if it ends now. */
export function span() {
  const { query } = parsed();
  const from = Number(query.get('from'));
  const until = Number(query.get('to'));
  if (from > 0) {
    const live = !(until > from);
    const to = live ? Math.max(now(), from + 2) : until;
    return { from, to, live, length: to - from, name: '' };
  }
  const name = seconds(query.get('last')) ? query.get('last') : '15m';
  const length = seconds(name);
  return { from: now() - length, to: now(), live: true, length, name };
}

/** How many seconds earlier the span lies that this one is compared with; 0 is none. */
export function shift() {
  const kind = param('cmp');
  if (kind === 'before') return span().length;
  return SHIFTS[kind] || 0;
}

/** The address of a screen. Span and comparison stay; the rest stays only on the same screen. */
export function link(to, changes = {}) {
  const at = parsed();
  const query = new URLSearchParams();
  for (const [name, value] of at.query) {
    if (EVERYWHERE.includes(name) || to === at.screen) query.set(name, value);
  }
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === '' || value === undefined) query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  return `#${to}${text ? `?${text}` : ''}`;
}

/** Goes there. `quietly` leaves no step in the browser's history and draws nothing anew. */
export function go(to, changes, quietly = false) {
  const hash = link(to, changes);
  if (hash === location.hash) return;
  if (quietly) history.replaceState(null, '', hash);
  else location.hash = hash;
}

/** Looks at a part of the time; `back` returns. */
export function zoom(from, to) {
  const at = parsed();
  zooms.push(EVERYWHERE.map((name) => [name, at.query.get(name)]));
  if (zooms.length > 50) zooms.shift();
  go(at.screen, { last: null, from: Math.floor(from), to: Math.max(Math.ceil(to), Math.floor(from) + 5) });
}

export function back() {
  const before = zooms.pop();
  if (before) go(screen(), Object.fromEntries(before.filter(([name]) => name !== 'cmp')));
  else if (!span().name) go(screen(), { from: null, to: null, last: null });
}

/** Moves the span by a part of itself, never past now. */
export function pan(part) {
  const { from, to, length } = span();
  const by = Math.round(length * part);
  if (to + by >= now() && by > 0) {
    const known = Object.keys(UNITS).find((unit) => length % UNITS[unit] === 0 && length / UNITS[unit] < 100);
    go(screen(), { from: null, to: null, last: known ? `${length / UNITS[known]}${known}` : null });
  } else go(screen(), { last: null, from: from + by, to: to + by });
}

/** The address of what explains a span. */
export function explains(from, to, more = {}) {
  return link('throttles', { explain: `${Math.floor(from)}-${Math.ceil(to)}`, ...more });
}
