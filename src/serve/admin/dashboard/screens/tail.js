// The screen Tail: the newest requests that were kept as samples, as they come.

import { Range, get, policies, recentMean, sumSeries, fetchLimits } from '../api.js';
import { go, link, param } from '../state.js';
import { empty, h, panel, put, rate, setText, table } from '../ui.js';
import { sampleColumns } from './throttles.js';

const MOST = 300;
const OUTCOMES = ['refused', 'over', 'shadow_refused', 'try_refused', 'admitted', 'usage', 'shed', 'failed', 'denied', 'banned', 'rejected', 'gone'];

export function open() {
  const total = new Range('all:tollgate_requests_total');
  let paused = false;
  let held = [];
  let asked = '';
  const choose = (id, label, options) => {
    const select = h('select', { id }, h('option', { value: '' }, 'all'), options.map((name) => h('option', { value: name }, name.replace('_', ' '))));
    return [select, h('label', {}, label, select)];
  };
  const [route, routeLabel] = choose('tail-route', 'route', []);
  const [limit, limitLabel] = choose('tail-limit', 'limit', []);
  const [outcome, outcomeLabel] = choose('tail-outcome', 'outcome', OUTCOMES);
  const key = h('input', { type: 'search', id: 'tail-key', placeholder: 'key', autocomplete: 'off', spellcheck: 'false', 'aria-label': 'Key' });
  const pause = h('button', { type: 'button', id: 'tail-pause', 'aria-pressed': 'false' }, 'Pause');
  const fields = [['filter_route', route], ['filter_limit', limit], ['outcome', outcome], ['filter_key', key]];
  outcome.value = param('outcome') || '';
  key.value = param('filter_key') || '';
  for (const [name, field] of fields) field.addEventListener('change', () => go('tail', { [name]: field.value.trim() }));
  pause.addEventListener('click', () => {
    paused = !paused;
    pause.setAttribute('aria-pressed', String(paused));
    setText(pause, paused ? 'Resume' : 'Pause');
  });
  const all = panel('tail', 'Tail', pause);
  const rows = table('Samples', [
    ...sampleColumns,
    { name: 'from', title: 'From', wide: true, cell: (row) => h('span', { class: 'key' }, [row.ip, row.user].filter(Boolean).join(' ')) },
    { name: 'why', title: 'Explain', quiet: true, cell: (row) => (['refused', 'shed', 'over'].includes(row.outcome) || row.status === 429 ? h('a', { href: link('throttles', { explain: `${Math.floor(row.at) - 30}-${Math.ceil(row.at) + 1}` }) }, 'explain') : '') },
  ], { key: (row) => `${row.at} ${row.path} ${row.ip}` });
  const none = empty('No sample yet. Each second some of the requests are kept, refused ones first.');
  all.body.append(h('div', { class: 'asks' }, routeLabel, limitLabel, outcomeLabel, key), rows.root, none);

  async function load(span, signal) {
    if (paused) return;
    const filter = Object.fromEntries(fields.map(([name]) => [name.replace('filter_', ''), param(name)]));
    const sign = JSON.stringify([filter, span.live ? span.length : span.from]);
    const newest = sign === asked && span.live ? held[0]?.at : null;
    const from = newest ? Math.floor(newest) - 1 : span.from;
    const { samples } = await get('record/samples', { from, to: span.to, ...filter, most: newest ? 50 : 100 }, signal);
    const same = (sample) => `${sample.at} ${sample.path} ${sample.ip}`;
    const known = new Set(newest ? held.map(same) : []);
    const fresh = samples.filter((sample) => !known.has(same(sample)));
    held = (newest ? [...fresh, ...held] : samples).slice(0, MOST);
    asked = sign;
    const filtered = fields.some(([name]) => param(name));
    setText(none, filtered ? 'No sample of this span is like that. Take away a filter, or look at a longer span.' : 'No sample yet. Each second some of the requests are kept, refused ones first.');
    rows.set(held, none);
    const range = await total.read(span, 60, signal);
    const { value } = recentMean(range, sumSeries(range), span.live);
    const lately = held.filter((sample) => sample.at > span.to - 10).length / 10;
    all.note(`${rate(value)} requests/s in all${span.live ? `, ${rate(lately)}/s of them shown` : `, ${held.length} shown`}: a sample, not everything`);
  }
  const names = async () => {
    const [loaded, limits] = await Promise.all([policies(''), fetchLimits('')]);
    const fill = (select, of, name) => {
      put(select, h('option', { value: '' }, 'all'), [...new Set(of)].map((text) => h('option', { value: text }, text)));
      select.value = param(name) || '';
    };
    fill(route, loaded.routes.map((one) => one.name), 'filter_route');
    fill(limit, limits.map((one) => one.limit), 'filter_limit');
  };
  const jobs = [
    all.job(1, load),
    all.job(60, names),
  ];
  return { title: 'Tail', parts: [all.root], charts: [], jobs };
}
