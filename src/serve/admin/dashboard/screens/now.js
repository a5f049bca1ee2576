// The screen Now: whether limits refuse more than usual, which limits and which keys, and curves to compare with.

import { Range, allShadow, earlierRange, get, eventReader, cached, line, percentile, findSeries, quantiles, rates, recentMean, runAround, runs, sumSeries, fetchLimits } from '../api.js';
import { Chart } from '../charts.js';
import { orderButton, orderColumn } from '../order_dialog.js';
import { ban } from '../orders.js';
import { explainLink, link, now, shift } from '../state.js';
import { bar, between, shortPath, column, count, empty, h, keyText, formatDuration, panel, put, rate, setText, share, short, spark, table, formatSeconds } from '../ui.js';

export const OUTCOMES = ['admitted', 'over', 'refused', 'shed', 'failed'];
const WATCHED = 900;
/** The last buckets of the watched time, which are compared with the others. */
const RECENT_BUCKETS = 6;
/** The least number of seconds that must have been recorded before those for a comparison. */
const LEAST_HISTORY = 30;
/** The share of refused requests from which the banner is not green, also if that is usual. */
const MUCH_REFUSED = 0.05;

/** A tile with a number, its name, a note, a small curve and a link. */
function kpi(id, label) {
  const value = h('b', {});
  const sub = h('small', {});
  const curve = h('span', { class: 'curve' });
  const root = h('a', { class: 'kpi', id }, h('span', { class: 'label' }, label), value, sub, curve);
  return {
    root,
    set({ text, note = '', href, values, kind, loud = false }) {
      setText(value, text);
      setText(sub, note);
      root.setAttribute('href', href);
      root.classList.toggle('loud', loud);
      if (values) put(curve, spark(values, kind));
    },
  };
}

/** The address that explains the highest run of some values; `otherwise` if there are no values. */
function peak(range, values, otherwise) {
  const top = values.reduce((best, value, at) => (value !== null && value > (values[best] || 0) ? at : best), -1);
  if (top < 0) return otherwise;
  const [first, last] = runAround(values, top);
  return explainLink(range.from + first * range.step, range.from + (last + 1) * range.step);
}

/** The rates of an earlier range, on the buckets of `range`, which is `by` seconds later. */
export function earlier(range, before, by) {
  const sum = sumSeries(before) || { sum: before.covered.map(() => 0) };
  const y = rates(before, sum);
  return range.covered.map((_, at) => y[Math.round((range.from + at * range.step - by - before.from) / before.step)] ?? null);
}

export const compared = () => ({ 86400: 'day before', 604800: 'week before' })[shift()] || 'span before';

/** The limits that refuse far more than usual now, the highest rate first. */
function alarms(range) {
  const found = [];
  const names = new Set(range.series.map((series) => series.labels.limit));
  for (const limit of names) {
    const series = findSeries(range, { limit, outcome: 'refused' });
    if (!series) continue;
    const values = rates(range, series);
    const usual = percentile(values.slice(0, -RECENT_BUCKETS), 0.3);
    const is = recentMean(range, series, true, 4).value;
    if (is === null || is < Math.max(1, usual * 4 + 1)) continue;
    let at = values.length - 1;
    while (at > 0 && values[at] === null) at -= 1;
    const [first] = runAround(values, at);
    found.push({ limit, is, usual, from: range.from + first * range.step });
  }
  return found.sort((a, b) => b.is - a.is);
}

export function open() {
  const outcomes = new Range('outcome:tollgate_requests_total');
  const over = new Range('outcome:tollgate_limit_decisions_total{outcome="over"}');
  const past = earlierRange('outcome:tollgate_requests_total');
  const events = eventReader();
  const shadow = new Range('outcome:tollgate_limit_decisions_total{outcome="shadow_refused"}');
  const watch = new Range('tollgate_limit_decisions_total', { by: 'limit,outcome' });
  const watchAll = new Range('outcome:tollgate_requests_total');
  const answers = new Range('status:tollgate_responses_total');
  const latency = new Range('tollgate_request_duration_seconds_bucket', { by: '', quantiles: '0.5,0.95,0.99' });
  const inflight = new Range('all:tollgate_requests_open');
  const byLimit = new Range('tollgate_limit_decisions_total', { by: 'limit,outcome' });
  const byRoute = new Range('tollgate_requests_total', { by: 'route,outcome' });
  const slow = new Range('tollgate_request_duration_seconds_bucket', { by: 'route', quantiles: '0.99' });
  const busiest = cached(3, (limit, to, signal) => get('record/top', { of: 'refused', from: to - 60, limit, most: 1 }, signal));
  const own = {};

  const words = h('p', {}, 'Looking at the last 15 minutes …');
  const why = h('a', { class: 'explain button', hidden: true }, 'Explain');
  const banner = h('div', { id: 'banner', class: 'plain' }, words, why);
  const tiles = Object.fromEntries([
    ['requests', 'Requests/s'], ['refused', 'Refused/s'], ['upstream429', '429 from upstreams/s'], ['failed', 'Shed and failed/s'],
    ['p99', 'p99, arrival to end'], ['open', 'In flight'],
  ].map(([name, label]) => [name, kpi(`kpi-${name}`, label)]));

  const main = new Chart({ id: 'chart-requests', showsEvents: true, label: 'Requests per second, admitted and refused', height: 170, run: () => own.refused || own.total });
  const lost = new Chart({ id: 'chart-refused', label: 'Requests per second that were over a limit, refused, shed or failed', height: 190, run: () => own.refused || own.total });
  const times = new Chart({ id: 'chart-latency', label: 'Seconds from arrival to the end of the response', unit: 'seconds', height: 210 });
  const status = new Chart({ id: 'chart-status', label: 'Responses per second by status and origin', height: 210, run: () => own.gone || [] });
  const charts = [main, lost, times, status];

  const curves = panel('requests', 'Requests');
  const limits = panel('limits', 'Refused by limit', h('a', { href: link('throttles') }, 'all limits'));
  const lasts = panel('latency', 'Latency');
  const codes = panel('status', 'Responses by status');
  const who = panel('who', 'Who is refused', h('a', { href: link('keys') }, 'all keys'));
  const paths = panel('busy', 'Routes', h('a', { href: link('routes') }, 'all routes'));
  curves.body.append(main.root, lost.root);
  lasts.body.append(times.root);
  codes.body.append(status.root);

  const bars = table('Limits by refusals', [
    { name: 'limit', title: 'Limit', cell: (row) => [row.limit, h('small', { title: row.at }, shortPath(row.at))] },
    { name: 'rate', title: 'Per second', n: true, cell: (row) => rate(row.rate) },
    { name: 'share', title: 'of all', n: true, cell: (row) => bar(row.share) },
  ], { key: (row) => row.limit, href: (row) => row.href });
  const noBars = empty('No limit refused anything in this span.');
  limits.body.append(bars.root, noBars);

  const people = table('Keys by refusals', [
    column.key,
    { ...column.refused, title: 'Requests' },
    { name: 'share', title: 'Share', n: true, cell: (row) => bar(row.share) },
    { ...column.limit, wide: true },
    orderColumn((row) => (row.key ? orderButton(ban, { key: row.key }) : [])),
  ], { key: (row) => `${row.limit} ${row.key}`, href: (row) => link('keys', { key: row.key }) });
  const nobody = empty('Nobody was refused in this span. Once a limit refuses, the keys it refused stand here.');
  who.body.append(people.root, nobody);

  const lines = table('Routes', [
    { name: 'route', title: 'Route', cell: (row) => row.route },
    { name: 'rate', title: 'Req/s', n: true, cell: (row) => rate(row.rate) },
    { name: 'refused', title: 'Refused', n: true, cell: (row) => (row.refused ? bar(row.refused) : h('span', { class: 'nil' }, '0 %')) },
    { name: 'p99', title: 'p99', n: true, cell: (row) => formatSeconds(row.p99) },
    { name: 'trend', title: 'Trend', wide: true, cell: (row) => spark(row.trend) },
  ], { key: (row) => row.route, href: (row) => link('routes', { route: row.route }) });
  const noRoutes = empty('No request came in this span. Send one to the gateway and it shows here within two seconds.');
  paths.body.append(lines.root, noRoutes);

  const fleet = panel('gateways', 'Gateways');
  const each = table('Gateways', [
    { name: 'gateway', title: 'Gateway', cell: (row) => [row.name, h('small', {}, row.address ?? 'this one')] },
    { name: 'rate', title: 'Requests/s', n: true, cell: (row) => rate(row.rate) },
    { name: 'refused', title: 'Refused/s', n: true, cell: (row) => rate(row.refused) },
    { name: 'share', title: 'of requests', n: true, cell: (row) => (row.error ? '–' : bar(row.share)) },
    { name: 'limits', title: 'Limits that refused most', cell: (row) => row.error || row.most },
  ], { key: (row) => row.address, href: (row) => row.address && `http://${row.address}/` });
  const everywhere = table('Keys refused by all gateways', [column.key, column.refused, column.limit], { key: (row) => `${row.limit} ${row.key}`, href: (row) => link('keys', { key: row.key }) });
  const noneRefused = empty('No gateway that responded refused a request in the last two minutes.');
  fleet.body.append(each.root, h('h3', {}, 'Refused by all of them in the last two minutes'), everywhere.root, noneRefused);
  fleet.root.hidden = true;

  async function gateways(_, signal) {
    const { gateways: found, sum, span: seconds_ } = await get('gateways', {}, signal);
    fleet.root.hidden = found.length < 2;
    if (fleet.root.hidden) return;
    const most = (by) => Object.entries(by).sort((a, b) => b[1] - a[1]).slice(0, 2).map(([limit, times]) => `${limit} ${count(times)}`).join(', ');
    const share_ = (one) => (one.requests ? one.refused / one.requests : 0);
    const rows = found.map((one) => (one.error ? { ...one, name: 'no figures' } : { address: one.address, name: one.gateway, rate: one.requests / (one.seconds || 1), refused: one.refused / (one.seconds || 1), share: share_(one), most: most(one.limits) }));
    each.set([...rows, { address: '', name: `all ${sum.gateways} that responded`, rate: sum.requests_per_second, refused: sum.refused_per_second, share: share_(sum), most: most(sum.limits) }]);
    everywhere.set(sum.keys, noneRefused);
    fleet.note(`last ${formatDuration(seconds_)}; ${sum.gateways} of ${found.length} responded`);
  }

  async function requests(span, signal) {
    const points = main.bucketCount();
    const by = shift();
    const [range, soft, would, then_, marks] = await Promise.all([outcomes.read(span, points, signal), over.read(span, points, signal), shadow.read(span, points, signal), past(span, by, points, signal), events(span, signal)]);
    const total = sumSeries(range);
    own.total = rates(range, total);
    const alike = (other) => (other.step === range.step && other.from === range.from ? other.series[0] : null);
    const drawn = OUTCOMES.map((name) => line(range, name === 'over' ? alike(soft) : findSeries(range, { outcome: name }), name, name));
    own.refused = drawn[2].y.some((value) => value > 0) ? drawn[2].y : null;
    const dashed = then_ && { label: compared(), y: earlier(range, then_, by) };
    own.events = marks;
    main.draw(range, [drawn[0], drawn[2]], { span, events: marks, before: dashed });
    const shadowed = alike(would) && line(range, alike(would), 'shadow_refused', 'would be refused', { colour: 'quiet', dash: [2, 3] });
    lost.draw(range, shadowed ? [...drawn.slice(1), shadowed] : drawn.slice(1), { span, events: marks });
    curves.note(range.step === 1 ? 'every second' : `${formatDuration(range.step)} a point; band: least and most of one second`);

    const { value: all, covered } = recentMean(range, total, span.live);
    const { value: refused } = recentMean(range, findSeries(range, { outcome: 'refused' }), span.live);
    const losing = sumSeries(range, (labels) => labels.outcome === 'shed' || labels.outcome === 'failed');
    const { value: failed } = recentMean(range, losing, span.live);
    const mean = span.live ? `last ${formatDuration(covered)}` : 'mean of the span';
    const then = dashed ? percentile(dashed.y, 0.5) : null;
    tiles.requests.set({ text: rate(all), note: then ? `${all >= then ? '+' : '−'}${share(Math.abs(all - then) / then)} to ${compared()}` : mean, href: link('routes'), values: own.total });
    tiles.refused.set({ text: rate(refused), note: all ? `${share(refused / all)} of all` : mean, href: peak(range, drawn[2].y, link('throttles')), values: drawn[2].y, kind: 'refused', loud: all > 0 && refused / all > 0.05 });
    const losses = rates(range, losing);
    tiles.failed.set({ text: rate(failed), note: all ? `${share(failed / all)} of all` : mean, href: peak(range, losses, link('health')), values: losses, kind: 'failed' });
    document.title = refused >= 1 ? `${short(refused)}/s refused – tollgate` : 'tollgate';
  }

  async function alarm(_, signal) {
    const to = now();
    const watched = { from: to - WATCHED, to, live: true, length: WATCHED, name: '15m' };
    const points = WATCHED / 2 + 4;
    const [range, all, known] = await Promise.all([watch.read(watched, points, signal), watchAll.read(watched, points, signal), fetchLimits('')]);
    const [worst, ...others] = alarms(range);
    if (own.upstream > (worst?.is || 0)) return show('alarm', own.where, 'An upstream answers 429 by itself: ', h('b', { class: 'refused' }, `${rate(own.upstream)}/s`), '. The gateway admitted these.');
    if (allShadow(known)) return shadowOnly(range);
    const mean = (series) => recentMean(all, series, true, 4).value || 0;
    const refused = mean(findSeries(all, { outcome: 'refused' }));
    const part = refused / (mean(sumSeries(all)) || 1);
    const history = all.covered.slice(0, -RECENT_BUCKETS).reduce((sum, one) => sum + one, 0);
    const values = rates(all, findSeries(all, { outcome: 'refused' }));
    if (history < LEAST_HISTORY) {
      if (!refused) return calm(range, 'plain', 'Nothing is refused now; there is no history to compare with.');
      const by = worst ? ['. Most by ', h('b', {}, worst.limit), ` (${rate(worst.is)}/s).`] : '.';
      return show('unsure', peak(all, values, link('throttles')), h('b', {}, `${share(part)} refused`), ', no history to compare with', by);
    }
    if (!worst) {
      if (part < MUCH_REFUSED) return calm(range, 'calm', 'Nothing is refused above usual.');
      return show('unsure', peak(all, values, link('throttles')), h('b', {}, `${share(part)} refused`), ` (${rate(refused)}/s), as usual in the last 15 minutes.`);
    }
    const keys = await busiest(worst.limit, worst.limit, to, signal).catch(() => null);
    const top = keys?.keys[0];
    const part_ = top && keys.total ? top.count / keys.total : 0;
    const shape = top ? (part_ > 0.3 ? [keyText(top.key), `: ${share(part_)} of it`] : [`${short(keys.distinct)} keys, the busiest ${share(part_)}`]) : [];
    const more = others.length ? ` · also ${others.map((one) => one.limit).join(', ')}` : '';
    return show('alarm', explainLink(worst.from, to), h('b', {}, worst.limit), ' is refusing ', h('b', { class: 'refused' }, `${rate(worst.is)}/s`), worst.usual ? ` (usually ${rate(worst.usual)})` : ' (usually nothing)', shape.length ? ' · ' : '', shape, more);
  }

  /** Shows what limits would refuse, where all of them are in shadow mode. */
  function shadowOnly(range) {
    const chosen = range.series.filter((series) => series.labels.outcome === 'shadow_refused');
    const each = chosen.map((series) => [series.labels.limit, recentMean(range, series, true, 4).value]).filter(([, value]) => value).sort((a, b) => b[1] - a[1]);
    const would = each.length ? [' Would refuse now: ', each.slice(0, 3).map(([limit, value], at) => [at ? ', ' : '', h('b', {}, limit), ` ${rate(value)}/s`]), '.'] : ' None would refuse anything now.';
    return show('plain', null, 'Nothing is really refused: all limits are in shadow mode.', would);
  }

  /** Shows that nothing is refused, as `text` says it, and when there was a burst. */
  function calm(range, kind, text) {
    const refused = rates(range, sumSeries(range, (labels) => labels.outcome === 'refused'));
    const [last] = runs(refused).sort((a, b) => b.last - a.last);
    if (!last) return show(kind, null, text);
    const [from, to] = [range.from + last.first * range.step, range.from + (last.last + 1) * range.step];
    return show(kind, explainLink(from, to), `${text} Last burst ${between(from, to)}, up to ${rate(last.peak)}/s.`);
  }

  /** Shows the banner. Its link stays the same element, because a user may be about to press it. Only news is read out. */
  function show(kind, href, ...parts) {
    const text = h('p', {}, parts).textContent;
    if (text !== words.textContent) put(words, parts);
    const about = `${kind} ${text.split(' ', 2)}`;
    if (own.about && own.about !== about) setText(document.getElementById('said'), text);
    own.about = about;
    banner.className = kind;
    why.hidden = !href;
    if (href) why.setAttribute('href', href);
  }

  async function codesOf(span, signal) {
    const range = await answers.read(span, status.bucketCount(), signal);
    const own_ = (labels, wanted) => labels.status?.startsWith(wanted);
    const ups = sumSeries(range, (labels) => labels.status === '429' && labels.origin === 'upstream');
    const groups = [
      ['admitted', '2xx', (labels) => own_(labels, '2')], ['quiet', '3xx', (labels) => own_(labels, '3')],
      ['over', '4xx, not 429', (labels) => own_(labels, '4') && labels.status !== '429'],
      ['refused', '429 gateway', (labels) => labels.status === '429' && labels.origin === 'gateway'],
      ['shed', '429 upstream', (labels) => labels.status === '429' && labels.origin === 'upstream'],
      ['failed', '5xx', (labels) => own_(labels, '5')],
    ];
    const drawn = groups.map(([key, label, wanted]) => ({ label, sum: sumSeries(range, wanted), key })).filter((one) => one.sum || one.key === 'admitted');
    status.draw(range, drawn.map((one) => line(range, one.sum, one.key, one.label)), { span, events: own.events });
    own.gone = rates(range, sumSeries(range, (labels) => labels.status === '429'));
    const values = rates(range, ups);
    const { value } = recentMean(range, ups, span.live);
    own.upstream = span.live && value > percentile(values, 0.3) * 4 + 1 ? value : 0;
    own.where = peak(range, values, link('throttles'));
    const sum = values.reduce((total, one, at) => total + (one || 0) * range.covered[at], 0);
    tiles.upstream429.set({ text: rate(value), note: sum ? `${short(sum)} in this span` : 'none in this span', href: own.where, values, kind: 'shed', loud: value > 1 });
  }

  async function seconds(span, signal) {
    const range = await latency.read(span, times.bucketCount(), signal);
    const drawn = quantiles(range);
    times.draw(range, drawn, { span, events: own.events });
    const known = drawn[0].y.filter((value) => value !== null);
    const is = span.live ? known[known.length - 1] : percentile(known, 0.5);
    tiles.p99.set({ text: formatSeconds(is), note: known.length ? `median of the span ${formatSeconds(percentile(known, 0.5))}` : 'no responses in this span', href: link('routes', { sort: 'p99' }), values: drawn[0].y, kind: 'accent' });
  }

  const jobs = [
    curves.job(1, requests),
    { every: 1, run: (span, signal) => alarm(span, signal).catch((error) => error.name === 'AbortError' || show('plain', null, `It is not known whether something is refused above usual: ${error.message}`)) },
    who.job(3, async (span, signal) => {
      const known = await fetchLimits('');
      if (allShadow(known)) {
        const names = [...new Set(known.map((one) => one.limit))].slice(0, 4);
        const found = (await Promise.all(names.map((limit) => get('try', { limit, most: 8 }, signal)))).flatMap((one) => one.would_refuse.map((rule) => ({ ...rule, limit: one.limit })));
        const total = found.reduce((sum, rule) => sum + rule.refused, 0);
        who.rename('Who would be refused');
        who.note(`${count(total)} since the limits were loaded`);
        people.set(found.flatMap((rule) => rule.keys.map((one) => ({ ...one, limit: rule.limit, share: total ? one.count / total : 0 }))).sort((one, other) => other.count - one.count).slice(0, 8), nobody);
        return;
      }
      who.rename('Who is refused');
      const from = span.live ? Math.max(span.from, span.to - 60) : span.from;
      const found = await get('record/top', { of: 'refused', from, to: span.to, most: 8 }, signal);
      who.note(`${span.live ? 'last minute' : 'in this span'}: ${count(found.total)} refused${found.distinct === null ? '' : `, about ${short(found.distinct)} keys`}`);
      people.set(found.keys.map((one) => ({ ...one, share: found.total ? one.count / found.total : 0 })), nobody);
    }),
    fleet.job(3, gateways),
    codes.job(1, codesOf),
    limits.job(6, async (span, signal) => {
      const [range, known] = await Promise.all([byLimit.read(span, 240, signal), fetchLimits('')]);
      const places = new Map(known.map((one) => [one.limit, one.at]));
      const seconds_ = range.covered.reduce((sum, one) => sum + one, 0) || 1;
      const shown = allShadow(known) ? 'shadow_refused' : 'refused';
      limits.rename(shown === 'refused' ? 'Refused by limit' : 'Would be refused by limit');
      const rows = range.series.filter((series) => series.labels.outcome === shown).map((series) => ({ limit: series.labels.limit, sum: series.sum.reduce((a, b) => a + b, 0), values: rates(range, series) })).filter((row) => row.sum);
      const sum = rows.reduce((total, row) => total + row.sum, 0);
      bars.set(rows.sort((a, b) => b.sum - a.sum).slice(0, 5).map((row) => ({ ...row, rate: row.sum / seconds_, share: row.sum / sum, at: places.get(row.limit), href: peak(range, row.values, link('throttles')) })), noBars);
      limits.note(`${count(sum)} in this span`);
    }),
    paths.job(8, async (span, signal) => {
      const [range, late] = await Promise.all([byRoute.read(span, 60, signal), slow.read(span, 60, signal)]);
      const names = [...new Set(range.series.map((series) => series.labels.route))];
      const rows = names.map((route) => {
        const total = sumSeries(range, (labels) => labels.route === route);
        const all = recentMean(range, total, span.live, 5);
        const no = recentMean(range, findSeries(range, { route, outcome: 'refused' }), span.live, 5);
        const p99 = (findSeries(late, { route })?.quantiles['0.99'] || []).filter((value) => value !== null).pop();
        return { route, rate: all.value, refused: no.sum / (all.sum || 1), p99, trend: rates(range, total) };
      });
      lines.set(rows.sort((a, b) => b.rate - a.rate).slice(0, 8), noRoutes);
    }),
    lasts.job(6, seconds),
    curves.job(5, async (span, signal) => {
      const range = await inflight.read(span, 120, signal);
      const values = rates(range, range.series[0]);
      const known = values.filter((value) => value !== null);
      tiles.open.set({ text: count(span.live ? known[known.length - 1] : percentile(known, 0.5)), note: known.length ? `most ${count(Math.max(...known))}` : '', href: link('health'), values, kind: 'quiet' });
    }),
  ];
  const grid = h('div', { class: 'three' }, limits.root, lasts.root, codes.root);
  const below = h('div', { class: 'two' }, who.root, paths.root);
  return { title: 'Now', parts: [banner, h('div', { class: 'kpis' }, Object.values(tiles).map((tile) => tile.root)), curves.root, fleet.root, grid, below], charts, jobs };
}
