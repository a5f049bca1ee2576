// The screen Policies: the files as they are loaded, with the refusals of each limit in the margin. It changes no file.

import { Range, get, findSeries, rates, recentMean } from '../api.js';
import { explainLink, link, param } from '../state.js';
import { shortPath, h, panel, put, rate, spark } from '../ui.js';

export const identity = ['at'];

/** `policies/login.yaml:12` or `…:12:5` as file and line. */
function place(at) {
  const found = /^(.*?):(\d+)(?::\d+)?$/.exec(at || '');
  return found ? { path: found[1], line: Number(found[2]) } : { path: at || '', line: 0 };
}

export function open() {
  const decisions = new Range('tollgate_limit_decisions_total', { by: 'limit,outcome' });
  const costs = new Range('tollgate_cost_unknown_total', { by: 'limit' });
  const chosen = place(param('at'));
  const all = panel('policies', 'Loaded files');
  const names = h('nav', { 'aria-label': 'Files' });
  const body = h('tbody');
  const source = h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Text of the file' }, h('table', { class: 'source' }, body));
  const shown = panel('file', '…');
  shown.body.append(source);
  let files = [];
  let limits = [];
  let scrolled = false;
  const margins = new Map();

  function show() {
    if (!files.length) return put(names, h('p', { class: 'empty' }, 'No file is loaded.'));
    const file = files.find((one) => one.path === chosen.path) || files.find((one) => limits.some((limit) => place(limit.at).path === one.path)) || files[0];
    put(names, files.map((one) => h('a', { href: link('policies', { at: one.path }), 'aria-current': one === file ? 'true' : null, title: one.path }, shortPath(one.path))));
    all.note(`${files.length}`);
    shown.root.querySelector('h2').textContent = file.path;
    const here = new Map(limits.filter((limit) => place(limit.at).path === file.path).map((limit) => [place(limit.at).line, limit]));
    shown.note(here.size ? `${here.size} ${here.size === 1 ? 'limit' : 'limits'}` : 'no limit is written here');
    margins.clear();
    put(body, file.text.replace(/\n$/, '').split('\n').map((text, at) => {
      const number = at + 1;
      const limit = here.get(number);
      const margin = h('td', { class: 'margin' });
      if (limit) margins.set(limit.limit, margin);
      const at_ = `${file.path}:${number}`;
      return h('tr', { class: `${limit ? 'limit ' : ''}${number === chosen.line && file.path === chosen.path ? 'chosen' : ''}`, id: `line-${number}` },
        h('td', { class: 'no' }, h('a', { href: link('policies', { at: at_ }), class: 'nil', 'aria-label': `Line ${number}` }, String(number))),
        h('td', { class: `text ${/^\s*#/.test(text) ? 'remark' : ''}` }, text || ' '),
        margin);
    }));
    if (chosen.line && !scrolled && file.path === chosen.path) {
      scrolled = true;
      body.children[chosen.line - 1]?.scrollIntoView({ block: 'center' });
    }
    return undefined;
  }

  async function load(_, signal) {
    const [loaded, known] = await Promise.all([get('policies', {}, signal), get('limits', {}, signal)]);
    const same = JSON.stringify([files, limits.map((one) => one.at)]) === JSON.stringify([loaded.files, known.limits.filter((one) => !one.try).map((one) => one.at)]);
    files = loaded.files;
    limits = known.limits.filter((one) => !one.try);
    if (!same) show();
  }

  async function count(span, signal) {
    const [range, unknown] = await Promise.all([decisions.read(span, 60, signal), costs.read(span, 60, signal)]);
    for (const [limit, margin] of margins) {
      const of = (outcome) => recentMean(range, findSeries(range, { limit, outcome }), span.live, 5).value || 0;
      const refused = of('refused');
      const lost = recentMean(unknown, findSeries(unknown, { limit }), span.live, 5).value || 0;
      const values = rates(range, findSeries(range, { limit, outcome: 'refused' }));
      put(margin,
        spark(values, 'refused'),
        h('span', {}, `${rate(of('within'))} within`),
        of('over') ? h('span', {}, `${rate(of('over'))} over`) : null,
        of('shadow_refused') ? h('span', {}, `${rate(of('shadow_refused'))} in shadow`) : null,
        of('try_refused') ? h('span', {}, `${rate(of('try_refused'))} by try`) : null,
        lost ? h('span', {}, `${rate(lost)} of unknown cost/s`) : null,
        h('span', { class: refused ? 'refused' : '' }, h('a', { href: explainLink(span.from, span.to, { at: null }) }, `${rate(refused)} refused/s`)));
    }
  }
  const jobs = [
    all.job(5, load),
    shown.job(2, async (span, signal) => {
      if (!margins.size && !files.length) await load(span, signal);
      await count(span, signal);
    }),
  ];
  all.body.append(names);
  return { title: 'Policies', parts: [h('div', { class: 'files' }, all.root, shown.root)], charts: [], jobs };
}
