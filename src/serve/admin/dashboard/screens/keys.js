// The screen Keys: the keys that were refused or counted most, those that are near a limit or would have been refused by it,
// and the state of one key in its limits. Operators who may ban clients, reset counts, give grants and add API keys here.

import { Range, get, fetchLimits, recordedSeconds } from '../api.js';
import { Chart } from '../charts.js';
import { orderButton, orderColumn } from '../order_dialog.js';
import { addKey, amount, ban, grant, reset, revokeGrant, revokeKey, setBanResponse, unban } from '../orders.js';
import { go, link, param } from '../state.js';
import { bar, between, column, count, empty, h, formatDuration, keyText, panel, put, setText, share, short, table } from '../ui.js';
import { nearPanel, triedPanel } from './limit.js';
import { sampleColumns, windowed } from './throttles.js';

export const identity = ['key', 'focus'];

function lookup() {
  const input = h('input', { type: 'search', id: 'key-search', placeholder: 'ip=203.0.113.9, user=alice', autocomplete: 'off', spellcheck: 'false', 'aria-label': 'Key' });
  input.value = param('key') || '';
  const form = h('form', { class: 'asks', id: 'key-form' }, h('label', {}, 'Why was', input, 'refused?'), h('button', { type: 'submit' }, 'Look up'));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const text = input.value.trim();
    // A bare address is what most people have at hand.
    const key = /^[0-9a-f.:]+$/i.test(text) && /[.:]/.test(text) ? `ip=${text}` : text;
    go('keys', { key, focus: null });
  });
  if (param('focus')) setTimeout(() => input.focus());
  return form;
}

export function open() {
  return param('key') ? one(param('key')) : list();
}

/** The bans that hold, those that were hit most first. */
function bans() {
  const most = 100;
  const root = panel('bans', 'Bans', orderButton(ban, {}, 'Ban a client …'));
  const rows = table('Bans', [
    column.key,
    { name: 'left', title: 'Ends in', n: true, cell: (row) => formatDuration(row.left) },
    { name: 'hits', title: 'Refused', n: true, hint: 'by this gateway, since its start', cell: (row) => count(row.hits) },
    { name: 'by', title: 'By', cell: (row) => row.by },
    { name: 'reason', title: 'Reason', wide: true, cell: (row) => row.reason },
    orderColumn((row) => orderButton(unban, { key: row.key })),
  ], { key: (row) => row.key });
  const none = empty('Nobody is banned. `tollgate ban KEY --for 1h` keeps a client out.');
  root.body.append(rows.root, none);
  const load = async (span, signal) => {
    const found = await get('bans', {}, signal);
    setBanResponse(found.response);
    const shown = [...found.bans].sort((a, b) => b.hits - a.hits).slice(0, most);
    rows.set(shown, none);
    root.note(found.bans.length > most ? `${count(most)} of ${count(found.bans.length)}` : '');
  };
  return { root: root.root, job: root.job(2, load) };
}

/** A panel with a list of what operators have ordered, of which at most 100 are shown. */
function ordered({ id, title, order, columns, key, none, path }) {
  const most = 100;
  const root = panel(id, title, orderButton(order, {}, `${order.title} …`));
  const rows = table(title, columns, { key });
  const nothing = empty(none);
  root.body.append(rows.root, nothing);
  const load = async (span, signal) => {
    const found = (await get(path, {}, signal))[path];
    rows.set(found.slice(0, most), nothing);
    root.note(found.length > most ? `${count(most)} of ${count(found.length)}` : '');
  };
  return { root: root.root, job: root.job(2, load) };
}

const ends = { name: 'left', title: 'Ends in', n: true, cell: (row) => (row.left == null ? 'no end' : formatDuration(row.left)) };
const by = { name: 'by', title: 'By', cell: (row) => row.by };

const grants = () => ordered({
  id: 'grants',
  title: 'Grants',
  order: grant,
  path: 'grants',
  key: (row) => `${row.limit} ${row.key}`,
  none: 'No key has a grant. `tollgate grant LIMIT KEY --times 10 --for 1d` gives more.',
  columns: [
    column.key, column.limit,
    { name: 'more', title: 'Has', cell: (row) => (row.holds ? `${amount(row)}${row.number ? ` (${row.number.join(', ')})` : ''}` : `does not hold: ${row.why}`) },
    ends, by,
    { name: 'reason', title: 'Reason', wide: true, cell: (row) => row.reason },
    orderColumn((row) => orderButton(revokeGrant, { limit: row.limit, key: row.key })),
  ],
});

const apiKeys = () => ordered({
  id: 'api-keys',
  title: 'API keys',
  order: addKey,
  path: 'keys',
  key: (row) => row.id,
  none: 'No API key was added at run time. `tollgate key add USER` makes one.',
  columns: [
    { name: 'id', title: 'Id', cell: (row) => row.id },
    { name: 'user', title: 'User', cell: (row) => keyText(row.user) },
    { name: 'plan', title: 'Plan', cell: (row) => row.plan || '' },
    ends, by,
    { name: 'name', title: 'Name', wide: true, cell: (row) => row.name },
    orderColumn((row) => orderButton(revokeKey, { id: row.id, user: row.user })),
  ],
});

function list() {
  const [banned, granted, added] = [bans(), grants(), apiKeys()];
  const asked = panel('look-up', 'Look up');
  asked.body.append(lookup());
  const of = h('select', { id: 'keys-of', 'aria-label': 'Counted' }, h('option', { value: 'refused' }, 'refused'), h('option', { value: 'asked' }, 'all requests'));
  of.value = param('of') || 'refused';
  const limit = h('select', { id: 'keys-limit', 'aria-label': 'Limit' }, h('option', { value: '' }, 'all limits'));
  const all = panel('all-keys', 'Keys', h('span', { class: 'asks' }, h('label', {}, 'counted', of), h('label', {}, 'by', limit)));
  const wide = panel('distinct', 'One key or many');
  const chart = new Chart({ id: 'chart-distinct', label: 'Requests refused and different keys refused, by part of the span', unit: 'count', height: 150, sync: 'keys' });
  wide.body.append(chart.root);
  const rows = table('Keys', [
    column.key,
    { name: 'count', title: 'Requests', n: true, cell: (row) => count(row.count) },
    { name: 'share', title: 'Share', n: true, cell: (row) => bar(row.share, of.value === 'asked' ? 'admitted' : 'refused') },
    column.limit,
    orderColumn((row) => (row.rest || !row.key ? [] : [orderButton(ban, { key: row.key }), ' ', row.limit && orderButton(grant, { limit: row.limit, key: row.key })])),
  ], { key: (row) => `${row.limit} ${row.key}`, href: (row) => (row.rest ? null : link('keys', { key: row.key })) });
  const none = empty('Nobody in this span. Look at a longer one, or count all requests instead of refused ones.');
  all.body.append(rows.root, none);
  const near = nearPanel(() => param('limit'));
  const tried = triedPanel(() => param('limit'));
  const recorded = new Range('all:tollgate_requests_total');
  const turned = () => go('keys', { of: of.value === 'refused' ? null : of.value, limit: limit.value });
  of.addEventListener('change', turned);
  limit.addEventListener('change', turned);

  async function load(span, signal) {
    of.value = param('of') || 'refused';
    const found = await get('record/top', { of: of.value, from: span.from, to: span.to, limit: param('limit'), most: 30 }, signal);
    const shown = found.keys.map((one_) => ({ ...one_, share: found.total ? one_.count / found.total : 0 }));
    if (found.rest > 0) shown.push({ key: 'the rest', rest: true, count: found.rest, share: found.rest / found.total });
    rows.set(shown, none);
    all.note(`${count(found.total)} ${of.value === 'asked' ? 'requests' : 'refused'}${found.distinct === null ? '' : ` of about ${short(found.distinct)} keys`}, ${between(found.from, found.to)}`);
  }

  /** Reads parts of the span one by one, because lists of keys are kept by the minute. */
  async function spread(span, signal) {
    const step = Math.max(60, Math.ceil(span.length / 20 / 60) * 60);
    const from = span.from - (span.from % step);
    const parts = [];
    for (let at = from; at < span.to; at += step) parts.push(at);
    const each = [];
    for (const at of parts) {
      each.push(await get('record/top', { of: param('of') || 'refused', from: at, to: Math.min(at + step, span.to), limit: param('limit'), most: 1 }, signal));
    }
    const kept = await recorded.read({ from, to: span.to, live: false }, 240, signal);
    const covered = parts.map((at) => recordedSeconds(kept, at, Math.min(at + step, span.to)));
    const range = { from, step, covered };
    const seen = (values) => values.map((value, at) => (covered[at] ? value : null));
    chart.draw(range, [
      { key: 'refused', label: param('of') === 'asked' ? 'requests' : 'refused', colour: 'refused', y: seen(each.map((one_) => one_.total)) },
      { key: 'keys', label: 'different keys', colour: 'accent', dash: [7, 4], y: seen(each.map((one_) => one_.distinct)) },
    ], { span: { ...span, live: false } });
    wide.note(`by ${formatDuration(step)}: both lines together are a spray, the upper one alone is one key`);
  }
  const jobs = [
    all.job(2, load),
    wide.job(60, spread),
    near.job,
    tried.job,
    banned.job,
    granted.job,
    added.job,
    all.job(60, async () => {
      const limits = await fetchLimits('');
      put(limit, h('option', { value: '' }, 'all limits'), [...new Set(limits.map((known) => known.limit))].map((name) => h('option', { value: name }, name)));
      limit.value = param('limit') || '';
    }),
  ];
  return { title: 'Keys', parts: [asked.root, wide.root, near.root, tried.root, all.root, banned.root, granted.root, added.root], charts: [chart], jobs };
}

function one(key) {
  const asked = panel('look-up', 'Look up');
  asked.body.append(lookup());
  const stands = panel('key', 'How it stands now');
  const chart = new Chart({ id: 'chart-key', label: 'Requests per second of this key', height: 180, run: () => chart.lines[1].y });
  const curve = panel('key-curve', 'Its requests');
  const tries = panel('key-samples', 'Samples');
  curve.body.append(chart.root);
  const recorded = new Range('all:tollgate_requests_total');
  const used = (row) => (row.quota ? 1 - Math.max(0, row.remaining) / row.quota : 0);
  const rows = table('Limits of the key', [
    column.limit,
    { name: 'used', title: 'Used', cell: (row) => [h('span', { class: `meter ${row.remaining > 0 ? '' : 'full'}`, css: { '--part': share(used(row)).replace(/[<> ]/g, '') } }), `${count(row.quota - row.remaining)}/${count(row.quota)}`] },
    { name: 'window', title: 'Window', n: true, cell: (row) => (row.credits ? 'credits' : windowed(row.window)) },
    { name: 'reset', title: 'Resets in', n: true, cell: (row) => row.next_window ?? (row.credits || (row.remaining > 0 && !row.next_unit_in) ? '–' : formatDuration(row.next_unit_in)) },
    column.promise,
    column.at,
    orderColumn((row) => [
      row.concurrent === undefined && !row.credits && orderButton(reset, { limit: row.limit, key }), ' ', orderButton(grant, { limit: row.limit, key }),
    ]),
  ], { key: (row) => `${row.limit} ${row.window}` });
  const noLimits = empty('No limit counts by this key.');
  stands.body.append(rows.root, noLimits);
  const samples = table('Samples', sampleColumns);
  const none = empty('No request of this key was kept as a sample in this span.');
  tries.body.append(samples.root, none);

  async function load(span, signal) {
    const found = await get('record/key', { key, from: span.from, to: span.to }, signal);
    rows.set(found.limits, noLimits);
    samples.set(found.samples, none);
    const kept = await recorded.read({ from: found.from, to: span.to, live: false }, 240, signal);
    const covered = found.asked.map((_, at) => recordedSeconds(kept, found.from + at * found.step, Math.min(found.from + (at + 1) * found.step, span.to)));
    const range = { from: found.from, step: found.step, covered };
    const per = (list_) => list_.map((value, at) => (range.covered[at] ? value / range.covered[at] : null));
    chart.draw(range, [
      { key: 'admitted', label: 'requests', colour: 'admitted', y: per(found.asked) },
      { key: 'refused', label: 'refused', colour: 'refused', y: per(found.refused) },
    ], { span });
    const sum = (list_) => list_.reduce((a, b) => a + b, 0);
    curve.note(`at least ${count(sum(found.asked))} requests, ${count(sum(found.refused))} refused, by ${formatDuration(found.step)}`);
    stands.note('');
  }
  const bannedBy = h('span');
  const banned = h('span', { id: 'key-ban', hidden: true }, bannedBy, ' ', orderButton(unban, { key }, 'Lift the ban'));
  const name = h('p', { class: 'verdict' }, h('span', { class: 'key', id: 'key-name' }, key), banned, orderButton(ban, { key }));
  stands.body.prepend(name);
  /** Says whether the key itself is banned. */
  async function loadBan(_, signal) {
    const all = await get('bans', {}, signal);
    setBanResponse(all.response);
    const found = all.bans.find((one_) => one_.key === key);
    banned.hidden = !found;
    if (found) setText(bannedBy, `banned by ${found.by}, ends in ${formatDuration(found.left)}`);
  }
  const granted = h('p', { id: 'key-grants', hidden: true });
  name.after(granted);
  /** Lists the grants of the key. */
  async function loadGrants(_, signal) {
    const held = (await get('grants', {}, signal)).grants.filter((one_) => one_.key === key);
    granted.hidden = !held.length;
    put(granted, held.map((one_) => [`${one_.limit}: ${amount(one_)}${one_.credits ? '' : `, ends in ${formatDuration(one_.left)}`} `, orderButton(revokeGrant, { limit: one_.limit, key }), ' ']));
  }
  const jobs = [stands.job(2, load), stands.job(5, loadBan), stands.job(5, loadGrants)];
  const back = h('a', { href: link('keys', { key: null }), class: 'back' }, '‹ all keys');
  return { title: 'Key', parts: [back, asked.root, stands.root, curve.root, tries.root], charts: [chart], jobs };
}
