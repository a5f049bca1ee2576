// The screen Throttles: the refusals of each limit and their bursts. Also the explanation of a span: which limit refused,
// which keys and requests, and what had changed.

import { Range, allShadow, earlierRange, get, eventReader, line, findSeries, rates, recentMean, runs, sumSeries, fetchLimits } from '../api.js';
import { Chart, describeEvent } from '../charts.js';
import { explainLink, link, param, shift } from '../state.js';
import { bar, between, column, copier, count, empty, fine, full, h, keyText, formatDuration, outcome, panel, put, rate, setText, share, short, spark, table, policyLink } from '../ui.js';
import { limitPage } from './limit.js';
import { compared, earlier } from './now.js';

export const identity = ['explain', 'limit'];
const LINES = ['refused', 'accent', 'over', 'shed', 'failed', 'quiet'];
const SHAPES = {
  one_key: 'One key', few_keys: 'A few keys', spray: 'A spray: very many keys, each a little', everyone: 'Everyone together',
  config: 'A change of the configuration', upstream: 'The upstream itself answers 429', none: 'Nothing unusual',
};
const ADVICE = {
  one_key: 'Talk to this client or block it in front; the limit did what it is for. If it must be let in, give it a plan of its own.',
  few_keys: 'Look at these keys: often one integration with several accounts. The limit did what it is for.',
  spray: 'No limit by key stops a spray. A limit by network (ip/24) or on everyone together does.',
  everyone: 'The limit counts all clients together and is reached: raise it, or add one by key so that nobody takes what is for all.',
  config: 'If this was not meant, set back the lines named under Changed; the gateway reads them again by itself.',
  upstream: 'The gateway admitted these. Ask the upstream’s owner, or set a limit here below what the upstream takes.',
  none: 'There is nothing to do.',
};

/** The lines of the limits with the most decisions of an outcome. */
function byLimit(range, most = 5, counted = 'refused') {
  const chosen = range.series.filter((series) => series.labels.outcome === counted);
  const ranked = chosen.map((series) => [series, series.sum.reduce((a, b) => a + b, 0)]).filter(([, sum]) => sum).sort((a, b) => b[1] - a[1]);
  const dashes = [undefined, [7, 4], [2, 3], [9, 3, 2, 3], [4, 2]];
  const drawn = ranked.slice(0, most).map(([series], at) => line(range, series, `limit-${series.labels.limit}`, series.labels.limit, { colour: LINES[at], dash: dashes[at], width: at ? 1.5 : 2 }));
  if (ranked.length > most) {
    const rest = new Set(ranked.slice(most).map(([series]) => series.labels.limit));
    drawn.push(line(range, sumSeries(range, (labels) => labels.outcome === counted && rest.has(labels.limit)), 'rest', `${rest.size} others`, { colour: 'quiet' }));
  }
  return drawn;
}

export const sampleColumns = [
  { name: 'at', title: 'At', cell: (row) => h('time', { title: full(row.at) }, fine(row.at)) },
  { name: 'outcome', title: 'Outcome', cell: (row) => outcome(row.outcome) },
  { name: 'status', title: 'Status', n: true, cell: (row) => `${row.status}${row.origin === 'upstream' ? ' up' : ''}`, hint: 'up: the upstream answered so' },
  { name: 'route', title: 'Route', cell: (row) => row.route },
  column.limit,
  { name: 'key', title: 'Key', cell: (row) => keyText(row.key || row.ip || '–', row.key) },
  { name: 'remaining', title: 'Left', n: true, cell: (row) => (row.quota ? `${row.remaining ?? '–'}/${row.quota}${row.window ? ` in ${windowed(row.window)}` : ''}` : '–') },
  { name: 'retry', title: 'Retry', n: true, cell: (row) => (row.retry_after === null || row.retry_after === undefined ? '–' : `${row.retry_after} s`) },
  { name: 'asked', title: 'Request', wide: true, cell: (row) => h('span', { class: 'key' }, `${row.method} ${row.path}`) },
];
export const windowed = (value) => (typeof value === 'number' ? formatDuration(value) : value || '–');

export function open() {
  const named = /^(\d+)-(\d+)$/.exec(param('explain') || '');
  if (!named && param('limit')) return limitPage(param('limit'));
  return named ? explain(Number(named[1]), Math.max(Number(named[2]), Number(named[1]) + 1)) : list();
}

function list() {
  const decisions = new Range('tollgate_limit_decisions_total', { by: 'limit,outcome' });
  const past = earlierRange('outcome:tollgate_limit_decisions_total{outcome="refused"}');
  const events = eventReader();
  const own = {};
  const chart = new Chart({ id: 'chart-limits', showsEvents: true, label: 'Refused per second by limit', height: 240, run: () => own.values });
  const curves = panel('refused', 'Refused by limit');
  const bursts = panel('bursts', 'Bursts in this span');
  const limits = panel('all-limits', 'Limits');
  curves.body.append(chart.root);
  const found = table('Bursts', [
    { name: 'when', title: 'When', cell: (row) => between(row.from, row.to) },
    { name: 'lasted', title: 'Lasted', n: true, cell: (row) => formatDuration(row.to - row.from) },
    { name: 'peak', title: 'Peak/s', n: true, cell: (row) => rate(row.peak) },
    { name: 'count', title: 'Refused', n: true, cell: (row) => count(row.count) },
    { ...column.limit, title: 'Mostly by' },
    { name: 'go', title: 'Explain', quiet: true, cell: (row) => h('a', { class: 'explain', href: row.href }, 'Explain') },
  ], { key: (row) => row.from, href: (row) => row.href });
  const noBurst = 'No burst: nothing was refused far above what is usual in this span. Look at a longer one.';
  const none = empty(noBurst);
  bursts.body.append(found.root, none);
  const rows = table('Limits', [
    column.limit,
    { name: 'refused', title: 'Refused/s', n: true, cell: (row) => rate(row.refused), sort: (row) => row.refused },
    { name: 'share', title: 'of requests', n: true, cell: (row) => bar(row.share), sort: (row) => row.share },
    { name: 'asked', title: 'Requests/s', n: true, cell: (row) => rate(row.asked), sort: (row) => row.asked },
    { name: 'over', title: 'Over/s', n: true, cell: (row) => rate(row.over), sort: (row) => row.over, hint: 'admitted and marked as over a soft limit' },
    { name: 'shadowed', title: 'Shadow/s', n: true, cell: (row) => rate(row.shadowed), sort: (row) => row.shadowed, hint: 'would have been refused' },
    { name: 'tried', title: 'Try/s', n: true, cell: (row) => rate(row.tried), sort: (row) => row.tried, hint: 'would have been refused by the candidate rate' },
    { name: 'trend', title: 'Refused', cell: (row) => spark(row.trend, 'refused') },
    column.promise,
    column.at,
  ], { key: (row) => row.limit, href: (row) => link('throttles', { limit: row.limit }), sort: 'refused' });
  const noLimits = empty('No limit is loaded. Write one in a policy file; it is read as soon as it is saved.');
  limits.body.append(rows.root, noLimits);

  async function draw(span, signal) {
    const [by, points] = [shift(), Math.round(chart.bucketCount() / 3)];
    const [range, then, marks, limits_] = await Promise.all([decisions.read(span, points, signal), past(span, by, points, signal), events(span, signal), fetchLimits('')]);
    const shadow = allShadow(limits_);
    const counted = shadow ? 'shadow_refused' : 'refused';
    curves.rename(shadow ? 'Would be refused by limit' : 'Refused by limit');
    setText(none, shadow ? 'All limits are in shadow mode: nothing is refused, so there is no burst.' : noBurst);
    own.values = rates(range, sumSeries(range, (labels) => labels.outcome === 'refused'));
    const lines = byLimit(range, 5, counted);
    const dashed = then && { label: compared(), y: earlier(range, then, by) };
    chart.draw(range, lines.length ? lines : [line(range, null, counted, shadow ? 'would be refused' : 'refused', { colour: 'refused' })], { span, events: marks, before: dashed });
    const href = (from, to) => explainLink(from, to);
    found.set(runs(own.values).slice(0, 12).map((run) => {
      const [from, to] = [range.from + run.first * range.step, range.from + (run.last + 1) * range.step];
      const sum = (series) => series.sum.slice(run.first, run.last + 1).reduce((a, b) => a + b, 0);
      const each = range.series.filter((series) => series.labels.outcome === 'refused').map((series) => [series.labels.limit, sum(series)]).sort((a, b) => b[1] - a[1]);
      return { from, to, peak: run.peak, count: each.reduce((total, [, one]) => total + one, 0), limit: each[0]?.[0] || '–', href: href(from, to) };
    }).sort((a, b) => b.from - a.from), none);
    // Candidate rates have the row of their limit.
    const own_ = limits_.filter((one) => !one.try);
    const known = own_.length ? own_ : [...new Set(range.series.map((series) => series.labels.limit))].map((limit) => ({ limit }));
    rows.set(known.map((one) => {
      const of = (name) => recentMean(range, findSeries(range, { limit: one.limit, outcome: name }), false).value || 0;
      const [refused, within, over, shadowed, tried] = ['refused', 'within', 'over', 'shadow_refused', 'try_refused'].map(of);
      const trend = rates(range, findSeries(range, { limit: one.limit, outcome: 'refused' }));
      const asked = refused + within + over + shadowed;
      return { ...one, refused, over, shadowed, tried, asked, share: asked ? refused / asked : 0, trend };
    }), noLimits);
    limits.note(`mean of ${formatDuration(span.length)}`);
  }
  const jobs = [
    curves.job(1, draw),
  ];
  return { title: 'Throttles', parts: [curves.root, bursts.root, limits.root], charts: [chart], jobs };
}

/** The three most frequent texts that `what` makes of samples, each with its share. */
function common(samples, what) {
  const counts = new Map();
  for (const sample of samples) counts.set(what(sample), (counts.get(what(sample)) || 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([text, times]) => [text, times / samples.length]);
}

/** The status and the rate-limit fields that the client received. */
function seen(sample) {
  if (!sample) return [];
  const told_ = [`${sample.status}${sample.status === 429 ? ' Too Many Requests' : ''}`];
  if (sample.retry_after !== null && sample.retry_after !== undefined) told_.push(`Retry-After: ${sample.retry_after}`);
  if (sample.limit) told_.push(`RateLimit: "${sample.limit}";r=${sample.remaining ?? 0}${sample.retry_after ? `;t=${sample.retry_after}` : ''}`);
  return told_;
}

function explain(from, to) {
  const margin = Math.max(60, (to - from) * 0.6);
  const around = { from: Math.floor(from - margin), to: Math.ceil(to + margin), live: false };
  const decisions = new Range('tollgate_limit_decisions_total', { by: 'limit,outcome' });
  const answers = new Range('status:tollgate_responses_total{status="429",origin="upstream"}');
  let answer = null;
  const chart = new Chart({ id: 'chart-explain', showsEvents: true, label: 'Refused per second by limit', height: 180, run: () => chart.lines.map((one) => one.y).reduce((a, b) => a.map((value, at) => (value === null ? null : value + (b[at] || 0)))) });
  const back = h('a', { href: link('throttles', { explain: null, limit: null }), class: 'back' }, '‹ all throttles');
  const verdict = panel('explain', 'Explain', copier('Copy link', 'copy-link', () => location.href), copier('Copy as text', 'copy-text', () => (answer ? asText(answer) : 'nothing yet')));
  const curve = panel('explain-curve', 'When');
  const tries = panel('explain-samples', 'Samples', h('a', { href: link('tail', { explain: null, from, to, last: null }) }, 'all in Tail'));
  curve.body.append(chart.root);
  const rows = table('Samples', sampleColumns);
  const none = empty('No request of this span was kept as a sample.');
  tries.body.append(rows.root, none);
  put(verdict.body, h('p', { class: 'empty' }, 'Loading who was refused, and why …'));

  async function ask(_, signal) {
    answer = await get('record/explain', { from, to }, signal);
    put(verdict.body, parts(answer));
    rows.set(answer.samples, none);
  }
  async function draw(_, signal) {
    const [range, ups, told_] = await Promise.all([decisions.read(around, chart.bucketCount(), signal), answers.read(around, chart.bucketCount(), signal), get('record/events', { from: around.from, to: around.to, audit: false }, signal)]);
    const lines = byLimit(range, 4);
    const up = sumSeries(ups);
    if (up && ups.step === range.step) lines.push(line(ups, up, 'upstream', '429 by the upstream', { colour: 'shed', dash: [2, 3] }));
    chart.draw(range, lines.length ? lines : [line(range, null, 'refused', 'refused')], { span: around, events: told_.events, selected: [from, to] });
    curve.note(`${between(around.from, around.to)}, the explained span shaded`);
  }
  const jobs = [
    verdict.job(0, ask),
    curve.job(0, draw),
  ];
  return { title: 'Explain', parts: [back, verdict.root, curve.root, tries.root], charts: [chart], jobs };
}

function fact(id, name, ...content) {
  return h('div', { class: 'fact', id }, h('dt', {}, name), h('dd', {}, content));
}

function parts(told_) {
  const { cause, limits, keys, events, samples, origin, before } = told_;
  const main = limits.filter((limit, at) => !at || limit.share >= 0.005);
  const times = before.refused ? (told_.refused / told_.seconds) / (before.refused / before.seconds) : 0;
  const earlier = before.seconds ? `the ${formatDuration(before.seconds)} just before` : 'a time that is not recorded';
  const than = before.refused ? `, ${short(times)} times the rate of ${earlier} (${count(before.refused)})` : `, none in ${earlier}`;
  const routes = common(samples, (sample) => `${sample.method} ${sample.route}`);
  const changes = events.flatMap((event) => [
    h('p', {}, describeEvent({ ...event, changes: [] })),
    ...(event.changes || []).map((change) => h('p', { class: 'change' }, h('b', {}, change.limit), ` ${change.before ?? 'new'} → ${change.after ?? 'gone'} `, policyLink(change.at))),
  ]);
  return [
    h('p', { class: 'sub' }, `${full(told_.from)} – ${between(told_.from, told_.to).split(' – ')[1]} (${formatDuration(told_.to - told_.from)}): `, h('b', {}, count(told_.refused)), ` refused, ${share(told_.share)} of all ${count(told_.requests)} requests${than}.`, origin.upstream_429 ? h('b', {}, ` ${count(origin.upstream_429)} answered 429 by the upstream.`) : null),
    h('p', { class: 'verdict', id: 'explain-text', 'data-cause': cause }, h('span', { class: `shape ${cause}`, id: 'explain-cause' }, SHAPES[cause] || cause), h('span', {}, told_.text)),
    h('dl', { class: 'facts' },
      fact('explain-which', 'Which', limits.length ? [
        main.map((limit) => h('div', { class: 'item' }, bar(limit.share), h('b', {}, limit.limit), h('span', {}, `${count(limit.refused)} · ${limit.guarantee || ''}`), limit.places.map((place) => policyLink(place.at)))),
        limits.length > main.length ? h('p', { class: 'sub' }, `${limits.length - main.length} more with less than 0.5 % each`) : null,
      ] : 'No limit of this gateway refused anything.'),
      fact('explain-who', 'Who', keys.length ? [
        h('p', {}, `${told_.at_least ? 'At least' : 'About'} ${short(told_.distinct)} ${told_.distinct === 1 ? 'key' : 'different keys'}.`),
        keys.slice(0, 6).map((one) => h('div', { class: 'item' }, bar(one.share), keyText(one.key, true), h('span', {}, `${count(one.count)} · ${one.limit}`))),
      ] : 'No key was counted as refused.'),
      fact('explain-what', 'What', [
        h('p', {}, `429 by the gateway ${count(origin.gateway_429)}, by the upstream ${count(origin.upstream_429)}.`),
        routes.length ? h('p', {}, routes.map(([text, of]) => `${text} ${share(of)}`).join(', '), ` of ${samples.length} samples.`) : null,
      ]),
      fact('explain-changed', 'Changed', changes.length ? changes : 'Nothing: no reload, no start.'),
      fact('explain-seen', 'Seen by client', seen(samples.find((sample) => sample.status === 429) || samples[0]).map((text) => h('code', {}, text))),
      fact('explain-next', 'What now', ADVICE[cause] || '–'),
    ),
  ];
}

function asText(told_) {
  const lines = [
    `${full(told_.from)} – ${full(told_.to)}: ${count(told_.refused)} refused, ${share(told_.share)} of ${count(told_.requests)} requests (in ${formatDuration(told_.before.seconds)} before: ${count(told_.before.refused)})`,
    `WHY      ${SHAPES[told_.cause] || told_.cause}. ${told_.text}`,
    ...told_.limits.slice(0, 5).map((limit) => `WHICH    ${limit.limit} ${count(limit.refused)} (${share(limit.share)}) ${limit.guarantee || ''} ${limit.at || ''}`),
    `WHO      about ${count(told_.distinct)} keys`,
    ...told_.keys.slice(0, 6).map((one) => `         ${JSON.stringify(one.key)} ${count(one.count)} (${share(one.share)}) by ${one.limit}`),
    `WHAT     429 by the gateway ${count(told_.origin.gateway_429)}, by the upstream ${count(told_.origin.upstream_429)}`,
    ...(told_.events.length ? told_.events.map((event) => `CHANGED  ${describeEvent(event)}`) : ['CHANGED  nothing']),
    `SEEN     ${seen(told_.samples[0]).join(', ')}`,
    location.href,
  ];
  return lines.join('\n');
}
