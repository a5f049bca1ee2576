// The screen Routes: the figures of every route, and one route in full.

import { Range, get, eventReader, line, findSeries, policies, quantiles, quoted, rates, recentMean, sumSeries, fetchLimits } from '../api.js';
import { Chart } from '../charts.js';
import { go, link, param } from '../state.js';
import { bar, column, count, empty, h, panel, rate, setText, share, short, spark, table, formatSeconds } from '../ui.js';
import { OUTCOMES } from './now.js';
import { sampleColumns } from './throttles.js';

export const identity = ['route'];
const NAME = 'tollgate_request_duration_seconds_bucket';

export function open() {
  return param('route') ? one(param('route')) : list();
}

function list() {
  const outcomes = new Range('tollgate_requests_total', { by: 'route,outcome' });
  const answers = new Range('tollgate_responses_total', { by: 'route,status,origin' });
  const latency = new Range(NAME, { by: 'route', quantiles: '0.5,0.95,0.99' });
  const inflight = new Range('tollgate_requests_open', { by: 'route' });
  let routes = new Map();
  let codes = null;
  let late = null;
  let open_ = null;
  let wanted = '';
  let last = null;

  const search = h('input', { type: 'search', id: 'route-filter', placeholder: 'name or path', autocomplete: 'off', spellcheck: 'false' });
  search.addEventListener('input', () => {
    wanted = search.value.toLowerCase();
    if (last) show(...last);
  });
  const all = panel('all-routes', 'Routes', h('label', { class: 'asks' }, h('span', {}, 'filter'), search));
  const share_ = (name) => (row) => (row[name] ? bar(row[name], name === 'admitted' ? 'admitted' : 'refused') : h('span', { class: 'nil' }, '0 %'));
  const number = (name, title, cell, hint, wide) => ({ name, title, n: true, hint, wide, cell: (row) => cell(row[name]), sort: (row) => row[name] ?? -1 });
  const rows = table('Routes', [
    { name: 'route', title: 'Route', cell: (row) => [row.route, h('small', {}, row.match || '')], sort: (row) => row.route },
    number('rate', 'Req/s', rate),
    { name: 'trend', title: 'Trend', wide: true, cell: (row) => spark(row.trend) },
    number('admitted', 'Admitted', share, 'of all requests', true),
    { name: 'refused', title: 'Refused', n: true, cell: share_('refused'), sort: (row) => row.refused, hint: 'by a limit, of all requests' },
    number('shed', 'Shed', share, 'because its upstream was full', true),
    number('failed', 'Failed', share, 'the upstream sent no response', true),
    number('up', '429 up/s', rate, '429 that the upstream itself answered', true),
    number('fives', '5xx/s', rate, '', true),
    number('p50', 'p50', formatSeconds, '', true),
    number('p95', 'p95', formatSeconds, '', true),
    number('p99', 'p99', formatSeconds),
    number('open', 'Open', count, 'requests in flight', true),
    { name: 'limits', title: 'Limits', wide: true, cell: (row) => h('span', { class: 'nil' }, row.limits.join(', ') || 'none') },
  ], { key: (row) => row.route, href: (row) => link('routes', { route: row.route }), sort: param('sort') || 'rate', onSort: (sort) => go('routes', { sort }, true) });
  const none = empty('No route is loaded. A policy file names one with `match` and `upstream`.');
  all.body.append(rows.root, none);

  function show(range, span) {
    const names = new Set([...routes.keys(), ...range.series.map((series) => series.labels.route)]);
    const each = [...names].map((route) => {
      const total = sumSeries(range, (labels) => labels.route === route);
      const sum = recentMean(range, total, false).sum || 0;
      const part = (outcome) => (recentMean(range, findSeries(range, { route, outcome }), false).sum || 0) / (sum || 1);
      const of = (wanted_) => (codes ? recentMean(codes, sumSeries(codes, (labels) => labels.route === route && wanted_(labels)), false).value : null);
      const quantiles = late ? findSeries(late, { route })?.quantiles || {} : {};
      const newest = (name) => (quantiles[name] || []).filter((value) => value !== null).pop() ?? null;
      const known = routes.get(route) || { limits: [] };
      const gauge = open_ && findSeries(open_, { route });
      return {
        route, match: known.match, limits: known.limits, trend: rates(range, total), rate: recentMean(range, total, span.live, 5).value || 0,
        admitted: part('admitted'), refused: part('refused'), shed: part('shed'), failed: part('failed'),
        up: of((labels) => labels.status === '429' && labels.origin === 'upstream'), fives: of((labels) => labels.status?.startsWith('5')),
        p50: newest('0.5'), p95: newest('0.95'), p99: newest('0.99'), open: gauge ? recentMean(open_, gauge, true, 1).value : null,
      };
    });
    const chosen = each.filter((row) => !wanted || `${row.route} ${row.match || ''}`.toLowerCase().includes(wanted));
    setText(none, wanted ? 'No route has this in its name or path.' : 'No route is loaded. A policy file names one with `match` and `upstream`.');
    rows.set(chosen, none);
    all.note(`${chosen.length}${chosen.length < each.length ? ` of ${each.length}` : ''}`);
  }
  const jobs = [
    all.job(5, async (span, signal) => { codes = await answers.read(span, 20, signal); }),
    all.job(5, async (span, signal) => { late = await latency.read(span, 20, signal); }),
    all.job(5, async (span, signal) => { open_ = await inflight.read(span, 20, signal); }),
    all.job(2, async (span, signal) => {
      const [range, known] = await Promise.all([outcomes.read(span, 60, signal), policies('')]);
      // A policy with several matches has an entry for each.
      routes = new Map();
      for (const route of known.routes) {
        const same = routes.get(route.name);
        routes.set(route.name, same ? { ...route, match: `${same.match}, ${route.match}` } : route);
      }
      last = [range, span];
      show(...last);
    }),
  ];
  return { title: 'Routes', parts: [all.root], charts: [], jobs };
}

function one(route) {
  const labels = `{route=${quoted(route)}}`;
  const outcomes = new Range(`tollgate_requests_total${labels}`);
  const answers = new Range(`tollgate_responses_total${labels}`, { by: 'status,origin' });
  let stage = 'request';
  const duration = { request: new Range(`${NAME}${labels}`, { by: '', quantiles: '0.5,0.95,0.99' }), upstream: new Range(`tollgate_upstream_duration_seconds_bucket${labels}`, { by: '', quantiles: '0.5,0.95,0.99' }) };
  const own = {};
  const events = eventReader();
  const admitted = new Chart({ id: 'chart-route', showsEvents: true, label: `Requests per second of ${route}`, height: 190, run: () => own.refused });
  const codes = new Chart({ id: 'chart-route-status', label: `Responses per second of ${route} by status and origin`, height: 190, run: () => own.refused });
  const times = new Chart({ id: 'chart-route-latency', label: `Latency of ${route}`, unit: 'seconds', height: 190 });
  const choice = h('select', { id: 'stage', 'aria-label': 'Stage' }, h('option', { value: 'request' }, 'arrival to end'), h('option', { value: 'upstream' }, 'upstream alone'));
  const first = panel('route', route);
  const second = panel('route-status', 'Responses by status');
  const third = panel('route-latency', 'Latency', choice);
  const fourth = panel('route-limits', 'Limits');
  const fifth = panel('route-samples', 'Samples', h('a', { href: link('tail', { filter_route: route, route: null }) }, 'Tail'));
  first.body.append(admitted.root);
  second.body.append(codes.root);
  third.body.append(times.root);
  const limits = table('Limits of the route', [
    column.limit,
    column.promise,
    { name: 'by', title: 'Counts by', wide: true, cell: (row) => (row.counts_by || []).join(', ') || 'everyone together' },
    column.at,
  ], { key: (row) => row.limit });
  const noLimits = empty('This route has no limit.');
  fourth.body.append(limits.root, noLimits);
  const who = panel('route-who', 'Who is refused here', h('a', { href: link('keys', { route: null }) }, 'all keys'));
  const people = table('Refused keys', [
    column.key,
    column.refused,
    column.limit,
  ], { key: (row) => `${row.limit} ${row.key}`, href: (row) => link('keys', { key: row.key, route: null }) });
  const nobody = empty('The limits of this route refused nobody in this span.');
  who.body.append(people.root, nobody);
  let names = [];
  const tries = table('Samples', sampleColumns);
  const none = empty('No request of this route was kept as a sample in this span.');
  fifth.body.append(tries.root, none);

  async function latencies(span, signal) {
    const range = await duration[stage].read(span, times.bucketCount(), signal);
    times.draw(range, quantiles(range), { span, events: own.events });
  }
  let latest = null;
  choice.addEventListener('change', () => {
    stage = choice.value;
    if (latest) third.fill(() => latencies(latest));
  });
  const kinds = { '200/upstream': 'admitted', '429/gateway': 'refused', '429/upstream': 'shed', '503/gateway': 'failed' };
  const jobs = [
    first.job(1, async (span, signal) => {
      const [range, marks] = await Promise.all([outcomes.read(span, admitted.bucketCount(), signal), events(span, signal)]);
      own.events = marks;
      const lines = OUTCOMES.filter((name) => name !== 'over').map((name) => line(range, findSeries(range, { outcome: name }), name, name));
      own.refused = rates(range, sumSeries(range, (of) => of.outcome !== 'admitted'));
      admitted.draw(range, lines, { span, events: marks });
      const total = recentMean(range, sumSeries(range), false).sum;
      first.note(`${short(total)} requests, ${share(recentMean(range, findSeries(range, { outcome: 'refused' }), false).sum / (total || 1))} refused`);
    }),
    second.job(3, async (span, signal) => {
      const range = await answers.read(span, codes.bucketCount(), signal);
      const spare = ['quiet', 'over', 'accent', 'before'];
      const ranked = [...range.series].sort((a, b) => b.sum.reduce((x, y) => x + y, 0) - a.sum.reduce((x, y) => x + y, 0)).slice(0, 7).sort((a, b) => (a.labels.status < b.labels.status ? -1 : 1));
      const lines = ranked.map((series, at) => {
        const name = `${series.labels.status}/${series.labels.origin}`;
        return line(range, series, `status-${name}`, `${series.labels.status} ${series.labels.origin}`, { colour: kinds[name] || spare[at % 4], dash: series.labels.origin === 'upstream' ? undefined : [5, 3] });
      });
      codes.draw(range, lines.length ? lines : [line(range, null, 'quiet', 'no responses')], { span, events: own.events });
    }),
    third.job(3, (span, signal) => {
      latest = span;
      return latencies(span, signal);
    }),
    fourth.job(30, async () => {
      const [found, all] = await Promise.all([policies(''), fetchLimits('')]);
      const mine = found.routes.find((known) => known.name === route);
      names = mine?.limits || [];
      limits.set(all.filter((limit) => mine?.limits.includes(limit.limit)), noLimits);
      fourth.note(mine ? `${mine.match} → ${mine.upstream}` : 'this route is not loaded now');
    }),
    who.job(5, async (span, signal) => {
      if (!names.length) names = (await policies('')).routes.find((known) => known.name === route)?.limits || [];
      const tops = await Promise.all(names.slice(0, 4).map((limit) => get('record/top', { of: 'refused', from: span.from, to: span.to, limit, most: 6 }, signal)));
      people.set(tops.flatMap((top) => top.keys).sort((a, b) => b.count - a.count).slice(0, 6), nobody);
    }),
    fifth.job(3, async (span, signal) => {
      const { samples } = await get('record/samples', { from: span.from, to: span.to, route, most: 20 }, signal);
      tries.set(samples, none);
    }),
  ];
  const back = h('a', { href: link('routes', { route: null }), class: 'back' }, '‹ all routes');
  return { title: `Route ${route}`, parts: [back, first.root, h('div', { class: 'two' }, second.root, third.root), h('div', { class: 'two' }, who.root, fourth.root), fifth.root], charts: [admitted, codes, times], jobs };
}
