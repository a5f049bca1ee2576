// The state of the page: the screen, its span of time and the comparison. All of it is in the address after `#`, so that a
// link shows other people the same. Nothing is kept on the gateway.

export const SCREENS = ['now', 'throttles', 'routes', 'keys', 'policies', 'tail', 'health'];
const UNITS = { s: 1, m: 60, h: 3600, d: 86400, w: 604800, y: 365 * 86400 };
const SHIFTS = { day: 86400, week: 604800 };
const KEPT_PARAMETERS = ['last', 'from', 'to', 'cmp'];

let latestSecond = 0;
let heardAt = 0;
const zoomHistory = [];

/** Sets the last second that the record has completed. */
export function setLatestSecond(at) {
  latestSecond = at;
  heardAt = performance.now();
}

/** The second after the last one that can be read. */
export function now() {
  if (!latestSecond) return Math.floor(Date.now() / 1000);
  return latestSecond + 1 + Math.max(0, Math.floor((performance.now() - heardAt - 500) / 1000));
}

export function parseDuration(text) {
  const found = /^(\d+)([smhdwy])$/.exec(text || '');
  return found ? Number(found[1]) * UNITS[found[2]] : null;
}

function parseAddress() {
  const [screen, query] = location.hash.replace(/^#/, '').split('?');
  return {
    screen: SCREENS.includes(screen) ? screen : 'now',
    query: new URLSearchParams(query || ''),
  };
}

export const screen = () => parseAddress().screen;
export const param = (name) => parseAddress().query.get(name);

/** The span that the address names, in seconds since 1970. `live` if it ends now. */
export function span() {
  const { query } = parseAddress();
  const from = Number(query.get('from'));
  const until = Number(query.get('to'));
  if (from > 0) {
    const live = !(until > from);
    const to = live ? Math.max(now(), from + 2) : until;
    return { from, to, live, length: to - from, name: '' };
  }
  const name = parseDuration(query.get('last')) ? query.get('last') : '15m';
  const length = parseDuration(name);
  return { from: now() - length, to: now(), live: true, length, name };
}

/** The seconds by which the compared span is earlier; 0 if there is no comparison. */
export function shift() {
  const kind = param('cmp');
  if (kind === 'before') return span().length;
  return SHIFTS[kind] || 0;
}

/** The address of a screen. Span and comparison are kept; other parameters are kept only for the same screen. */
export function link(to, changes = {}) {
  const at = parseAddress();
  const query = new URLSearchParams();
  for (const [name, value] of at.query) {
    if (KEPT_PARAMETERS.includes(name) || to === at.screen) query.set(name, value);
  }
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === '' || value === undefined) query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  return `#${to}${text ? `?${text}` : ''}`;
}

/** Goes to the address of a screen. `quietly` adds nothing to the browser's history and draws nothing again. */
export function go(to, changes, quietly = false) {
  const hash = link(to, changes);
  if (hash === location.hash) return;
  if (quietly) history.replaceState(null, '', hash);
  else location.hash = hash;
}

/** Shows a part of the span; `back` returns to the whole. */
export function zoom(from, to) {
  const at = parseAddress();
  zoomHistory.push(KEPT_PARAMETERS.map((name) => [name, at.query.get(name)]));
  if (zoomHistory.length > 50) zoomHistory.shift();
  go(at.screen, { last: null, from: Math.floor(from), to: Math.max(Math.ceil(to), Math.floor(from) + 5) });
}

export function back() {
  const before = zoomHistory.pop();
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

/** The address of the explanation of a span. */
export function explainLink(from, to, more = {}) {
  return link('throttles', { explain: `${Math.floor(from)}-${Math.ceil(to)}`, ...more });
}
