// The page of one limit: its decisions over time, how much of it keys have used, who is near it and whom it refused. The
// screen Keys has two of its panels.

import { Range, eventReader, fetchLimits, findSeries, get, line, quoted, rates } from '../api.js';
import { Chart } from '../charts.js';
import { link } from '../state.js';
import { bar, between, column, count, empty, h, formatDuration, panel, policyLink, put, table } from '../ui.js';
import { windowed } from './throttles.js';

const OUTCOMES = ['within', 'over', 'refused', 'shadow_refused', 'try_refused'];
const DASHES = { shadow_refused: [2, 3], try_refused: [9, 3] };
const QUARTERS = ['below 25 %', '25 to 50 %', '50 to 75 %', '75 % or more'];

/** How much of a limit keys have used, and those that are near it. `limit()` is its name; the panel is hidden without. */
export function nearPanel(limit) {
  const root = panel('near', 'Used by keys');
  const used = table('Keys by the used share of the limit', [
    { name: 'part', title: 'Used of the limit', cell: (row) => row.part },
    { name: 'keys', title: 'Keys', n: true, cell: (row) => count(row.keys) },
    { name: 'share', title: 'Share of keys', n: true, cell: (row) => bar(row.share, row.kind) },
  ], { key: (row) => row.part });
  const rows = table('Keys near the limit', [
    column.key,
    { name: 'used', title: 'Used', cell: (row) => [bar(row.used_share, row.used_share < 1 ? 'over' : 'refused'), ` ${count(row.quota - row.remaining)}/${count(row.quota)}`] },
    { name: 'left', title: 'Left', n: true, cell: (row) => count(row.remaining) },
    { name: 'window', title: 'Window', n: true, cell: (row) => (row.credits ? 'credits' : windowed(row.window)) },
    { name: 'reset', title: 'Next in', n: true, cell: (row) => (row.next_unit_in ? formatDuration(row.next_unit_in) : '–') },
  ], { key: (row) => `${row.scope} ${row.key}`, href: (row) => link('keys', { key: row.key }) });
  const noKeys = empty('No key has used this limit lately.');
  const nobody = empty('No key has used more than 80 %.');
  root.body.append(used.root, noKeys, h('h3', {}, 'Near the limit'), rows.root, nobody);
  async function load(_, signal) {
    root.root.hidden = !limit();
    if (!limit()) return;
    const found = await get('near', { limit: limit() }, signal);
    const total = found.distribution.reduce((sum, one) => sum + one, 0);
    used.set(total ? found.distribution.map((keys, at) => ({ part: QUARTERS[at], keys, share: keys / total, kind: at === 3 ? 'over' : 'admitted' })) : [], noKeys);
    rows.set(found.keys, nobody);
    root.note(`${count(total)} keys${found.complete ? '' : ', only the most frequent ones'}; ${count(found.keys.length)} above ${found.above} %`);
  }
  return { root: root.root, job: root.job(5, load) };
}

/** Whom a limit that refuses nothing would have refused. Hidden for limits that only refuse. */
export function triedPanel(limit) {
  const root = panel('tried', 'Would have been refused');
  const rows = table('Keys that would have been refused', [
    column.key,
    { name: 'count', title: 'Requests', n: true, cell: (row) => count(row.count) },
    { name: 'share', title: 'Share', n: true, cell: (row) => bar(row.share, 'refused') },
    { name: 'terms', title: 'By', cell: (row) => row.terms },
  ], { key: (row) => `${row.scope} ${row.key}`, href: (row) => link('keys', { key: row.key }) });
  const nobody = empty('Nobody so far.');
  root.body.append(rows.root, nobody);
  async function load(_, signal) {
    const chosen = limit();
    const limits = await fetchLimits('');
    root.root.hidden = !limits.some((known) => known.limit === chosen && known.shadow);
    if (root.root.hidden) return;
    const found = (await get('try', { limit: chosen, most: 30 }, signal)).would_refuse;
    const terms = (rule) => `${rule.try ? 'try' : 'shadow'} ${rule.rate ? rule.rate.join(', ') || 'credits' : `${rule.concurrent} open`}`;
    rows.set(found.flatMap((rule) => rule.keys.map((one) => ({ ...one, scope: rule.scope, terms: terms(rule), share: one.count / rule.refused }))), nobody);
    root.note(found.map((rule) => `${terms(rule)}: ${count(rule.refused)} of ${count(rule.decided)} in ${formatDuration(rule.seconds)}`).join('; '));
  }
  return { root: root.root, job: root.job(5, load) };
}

export function limitPage(limit) {
  const decisions = new Range(`tollgate_limit_decisions_total{limit=${quoted(limit)}}`, { by: 'outcome' });
  const events = eventReader();
  const own = {};
  const chart = new Chart({ id: 'chart-limit', showsEvents: true, label: `Decisions per second of ${limit}`, height: 190, run: () => own.refused });
  const first = panel('limit', limit, h('a', { href: link('tail', { limit: null, filter_limit: limit }) }, 'samples'));
  const promises = h('div', {});
  first.body.append(promises, chart.root);
  const near = nearPanel(() => limit);
  const tried = triedPanel(() => limit);
  const who = panel('limit-who', 'Refused most', h('a', { href: link('keys', { limit }) }, 'all keys'));
  const people = table('Keys that the limit refused', [
    column.key,
    column.refused,
    { name: 'share', title: 'Share', n: true, cell: (row) => bar(row.share) },
  ], { key: (row) => row.key, href: (row) => link('keys', { key: row.key }) });
  const nobody = empty('This limit refused nobody in this span.');
  who.body.append(people.root, nobody);
  const jobs = [
    first.job(1, async (span, signal) => {
      const [range, marks] = await Promise.all([decisions.read(span, chart.bucketCount(), signal), events(span, signal)]);
      const lines = OUTCOMES.map((name) => [name, findSeries(range, { outcome: name })]).filter(([name, series]) => name === 'within' || series?.sum.some((value) => value > 0));
      own.refused = rates(range, findSeries(range, { outcome: 'refused' }));
      chart.draw(range, lines.map(([name, series]) => line(range, series, name, name.replace('_', ' '), DASHES[name] && { colour: 'quiet', dash: DASHES[name] })), { span, events: marks });
    }),
    first.job(20, async () => {
      const found = (await fetchLimits('')).filter((one) => one.limit === limit);
      first.note(found.length ? '' : 'this limit is not loaded now');
      put(promises, found.map((one) => h('p', { class: 'sub' }, column.promise.cell(one), ' ', policyLink(one.at))));
    }),
    near.job,
    tried.job,
    who.job(3, async (span, signal) => {
      const found = await get('record/top', { of: 'refused', from: span.from, to: span.to, limit, most: 10 }, signal);
      const total = found.total ?? found.keys.reduce((sum, one) => sum + one.count, 0);
      people.set(found.keys.map((one) => ({ ...one, share: total ? one.count / total : 0 })), nobody);
      who.note(between(found.from, found.to));
    }),
  ];
  const back = h('a', { href: link('throttles', { limit: null }), class: 'back' }, '‹ all limits');
  return { title: `Limit ${limit}`, parts: [back, first.root, h('div', { class: 'two' }, near.root, who.root), tried.root], charts: [chart], jobs };
}
