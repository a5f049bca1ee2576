// What operators may order from the page. An order has the request that it sends (as `/v1/whoami` writes it), the fields that
// are asked for, and the text that says what will happen to whom.

import { send } from './api.js';
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
