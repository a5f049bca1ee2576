// What operators may order from the page. An order has the request that it sends (as `/v1/whoami` writes it), the fields that
// are asked for, and the text that says what will happen to whom.

import { get, send } from './api.js';
import { h, clock, full, keyText, parts } from './ui.js';

const UNITS = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400 };

/** When a time ends that begins now, as text. */
function until(length) {
  const found = /^(\d+) ?(ms|s|m|h|d)$/.exec(length);
  if (!found) return `for ${length || '…'}`;
  const end = Date.now() / 1000 + Number(found[1]) * UNITS[found[2]];
  const isToday = parts(end).day === parts(Date.now() / 1000).day;
  return `until ${isToday ? clock(end).slice(0, 5) : full(end).slice(0, -3)}`;
}

const key = { name: 'key', label: 'Client', hint: 'user=alice, 192.0.2.7, ip=192.0.2.0/24', required: true, most: 512 };
const duration = { name: 'for', label: 'For', initial: '1h', hint: '90s, 10m, 1h, 7d', required: true, choices: ['10m', '1h', '6h', '1d', '7d', '30d'] };
const reason = { name: 'reason', label: 'Reason', hint: 'for other operators; clients never see it', most: 256 };
const because = (text) => (text ? ` Reason: ${text}` : '');

let banResponse = '429';

/** Sets what banned clients get: `429`, `403` or `none`. */
export function setBanResponse(response) {
  banResponse = response;
}

export const ban = {
  request: 'POST /v1/bans',
  verb: 'Ban',
  title: 'Ban a client',
  fields: [key, duration, reason],
  effect: (order) => [
    'Requests of ', keyText(order.key || '…'), banResponse === 'none' ? ' get no response' : ` get ${banResponse}`,
    ` on every route ${until(order.for)}.${because(order.reason)}`,
  ],
  send: (order) => send('POST', 'bans', { key: order.key, for: order.for, reason: order.reason }),
  done: (_, banned) => `${banned.key} is banned`,
};

export const unban = {
  request: 'DELETE /v1/bans/{*key}',
  verb: 'Lift',
  title: 'Lift a ban',
  fields: [key],
  effect: (order) => ['Requests of ', keyText(order.key), ' are not refused by this ban any more. Limits count them as before.'],
  send: (order) => send('DELETE', `bans/${encodeURIComponent(order.key)}`),
  done: (order) => `${order.key} is not banned any more`,
};

export const reset = {
  request: 'DELETE /v1/limits/{limit}/keys/{key}',
  verb: 'Reset',
  title: 'Reset a count',
  fields: [key],
  effect: (order) => ['The limit ', h('b', {}, order.limit), ' forgets what it has counted of ', keyText(order.key), ': all of its quota is there again.'],
  send: (order) => send('DELETE', `limits/${encodeURIComponent(order.limit)}/keys/${encodeURIComponent(order.key)}`),
  done: (order) => `${order.limit} has forgotten ${order.key}`,
};

const limit = { name: 'limit', label: 'Limit', hint: 'per-user, api/per-user', required: true, most: 512, free: true };
const bold = (text) => h('b', {}, text || '…');
/** A whole number as such. The gateway says what is wrong with any other text. */
const number = (text) => (/^[0-9]{1,15}$/.test(text) ? Number(text) : text);
let creditLimits = new Set();
/** Learns which limits have credits: those have no rate, and what they are granted has no end. */
async function learnCredits() {
  const names = ({ limit: name, scope = '' }) => [name, scope.split('#')[0], `*/${name}`];
  creditLimits = new Set((await get('limits')).limits.filter((one) => one.rate?.length === 0).flatMap(names));
}
const hasCredits = (name = '') => creditLimits.has(name.trim());
let ownId = '';
/** An id for an order that is sent again if it got no response. `crypto.randomUUID` is missing where the page has no TLS. */
const makeId = () => Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, '0')).join('');
/** How much more a grant gives, as text. */
export const amount = ({ times, add, credits }) => (credits ? `${credits.added} credits in all` : times ? `${times} times its number` : add ? `${add} more than its number` : '…');

export const grant = {
  request: 'POST /v1/grants',
  verb: 'Grant',
  title: 'Grant more of a limit',
  fields: [
    limit, key,
    { name: 'times', label: 'Times', hint: '10 for ten times the number' },
    { name: 'add', label: 'Or add', hint: '5000 for so many more' },
    { name: 'order', label: 'Order', hint: 'inv-2026-11; the same order is never added twice', most: 64 },
    { ...duration, initial: '1d' }, reason,
  ],
  prepare: () => {
    ownId = makeId();
    return learnCredits();
  },
  omits: (order) => (hasCredits(order.limit) ? ['times', 'for'] : ['order']),
  effect: (order) => [
    'The limit ', bold(order.limit), ' lets ', keyText(order.key || '…'),
    hasCredits(order.limit) ? ` use ${order.add || '…'} credits more.` : ` have ${amount(order)} ${until(order.for)}.`,
    ` What it has used stays counted.${because(order.reason)}`,
  ],
  send: ({ times, add, ...order }) => send('POST', 'grants', {
    limit: order.limit, key: order.key, reason: order.reason, ...(order.for && { for: order.for }), ...(hasCredits(order.limit) && { order: order.order || ownId }), ...(times && { times: number(times) }), ...(add && { add: number(add) }),
  }),
  done: (_, granted) => `${granted.key} has ${amount(granted)} of ${granted.limit}${granted.holds ? '' : `, which does not hold now: ${granted.why}`}`,
};

export const revokeGrant = {
  request: 'DELETE /v1/grants/{limit}/{*key}',
  verb: 'Revoke',
  title: 'Take a grant back',
  fields: [{ ...limit, free: false }, key],
  prepare: learnCredits,
  effect: (order) => ['The limit ', bold(order.limit), ...(hasCredits(order.limit) ? [' takes back from ', keyText(order.key), ' all credits that are left.'] : [' holds for ', keyText(order.key), ' as it is written again. What it has used stays counted.'])],
  send: (order) => send('DELETE', `grants/${encodeURIComponent(order.limit)}/${encodeURIComponent(order.key)}`),
  done: (order, { revoked }) => (revoked === undefined ? `${order.key} has no grant of ${order.limit} any more` : `${revoked} credits of ${order.key} are taken back`),
};

const user = { name: 'user', label: 'User', hint: 'alice', required: true, most: 256 };
/** The identities of `tenant=acme, device=7`. */
function identities(text) {
  const pairs = text.split(',').map((pair) => pair.trim()).filter(Boolean);
  return Object.fromEntries(pairs.map((pair) => {
    const at = pair.indexOf('=');
    return at < 0 ? [pair, ''] : [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
  }));
}

export const addKey = {
  request: 'POST /v1/keys',
  verb: 'Add',
  title: 'Add an API key',
  fields: [
    user,
    { name: 'plan', label: 'Plan', hint: 'the default plan' },
    { name: 'set', label: 'Set', hint: 'tenant=acme, team=7' },
    { ...duration, initial: '', hint: 'without an end', required: false, choices: ['1d', '30d', '90d', '365d'] },
    { name: 'name', label: 'Name', hint: 'what it is for; clients never see it', most: 128 },
  ],
  effect: (order) => [
    'A new key: whoever holds it is ', keyText(`user=${order.user || '…'}`), order.plan ? [' with the plan ', bold(order.plan)] : '',
    ` ${order.for ? until(order.for) : 'until it is revoked'}. It is shown once.`,
  ],
  send: (order) => send('POST', 'keys', {
    user: order.user, name: order.name, set: identities(order.set), ...(order.plan && { plan: order.plan }), ...(order.for && { for: order.for }),
  }),
  reveal: (added) => [
    h('p', {}, 'This is the key of ', keyText(`user=${added.user}`), '. Copy it now: it is not shown again, and the gateway keeps only its hash.'),
    h('p', {}, h('code', { id: 'new-key' }, added.key)),
  ],
  done: (_, added) => `key ${added.id} of ${added.user} is added`,
};

export const revokeKey = {
  request: 'DELETE /v1/keys/{id}',
  verb: 'Revoke',
  title: 'Revoke an API key',
  fields: [{ name: 'id', label: 'Id', required: true }, user],
  effect: (order) => ['Requests with the key ', bold(order.id), ' of ', keyText(`user=${order.user}`), ' get 401 from the next one on. Other keys of the user stay.'],
  send: (order) => send('DELETE', `keys/${encodeURIComponent(order.id)}`),
  done: (order) => `key ${order.id} of ${order.user} is revoked`,
};
