// The frame of the dashboard: shows the screen that the address names, its span of time and the keyboard's keys. It follows
// the stream of seconds and runs the jobs of the screen.

import { Live, checkToken, get, storeToken, onTokenNeeded } from './api.js';
import { recolour } from './charts.js';
import { learnRights } from './order_dialog.js';
import * as state from './state.js';
import { between, h, inUtc, formatDuration, put, setText, setUtc } from './ui.js';
import * as now from './screens/now.js';
import * as throttles from './screens/throttles.js';
import * as routes from './screens/routes.js';
import * as keys from './screens/keys.js';
import * as policies from './screens/policies.js';
import * as tail from './screens/tail.js';
import * as health from './screens/health.js';

const screens = { now, throttles, routes, keys, policies, tail, health };
const PRESETS = ['15m', '1h', '6h', '24h', '7d', '30d', '1y'];
const byId = (id) => document.getElementById(id);
const main = byId('screen');
let view = null;
let tickCount = 0;
let requestAborter = new AbortController();

// Screens.

/** Shows the screen that the address names. Another screen is built; the same screen only reads its data again. */
function show() {
  const name = state.screen();
  const identity = [name, ...(screens[name].identity || []).map(state.param)].join('|');
  if (view?.identity !== identity) {
    view?.charts.forEach((chart) => chart.destroy());
    view = { identity, charts: [], jobs: [], ...screens[name].open() };
    put(main, h('h1', { class: 'hidden' }, view.title || name), view.parts);
    for (const link of byId('nav').children) {
      if (link.dataset.screen === name) {
        link.setAttribute('aria-current', 'page');
        link.scrollIntoView({ block: 'nearest', inline: 'nearest' });
      } else link.removeAttribute('aria-current');
    }
    document.body.dataset.screen = name;
    window.scrollTo(0, 0);
  }
  frame();
  requestAborter.abort();
  requestAborter = new AbortController();
  view.jobs.forEach((job) => {
    job.busy = false;
  });
  work(true);
  listen();
}

/** Runs the jobs of the screen that are due. Long spans change slowly, so they are read less often. */
function work(everything) {
  const span = state.span();
  const slower = span.length > 7 * 86400 ? 10 : span.length > 6 * 3600 ? 4 : span.length > 3600 ? 2 : 1;
  const { signal } = requestAborter;
  view.jobs.forEach((job, at) => {
    const every = job.every === 1 && slower < 4 ? 1 : job.every * slower;
    if (job.busy || !(everything || (every && (tickCount + at) % every === 0))) return;
    job.busy = true;
    job.run(span, signal).finally(() => {
      if (signal === requestAborter.signal) job.busy = false;
    });
  });
}

// Live.

const live = new Live(
  (second) => {
    state.setLatestSecond(second);
    tickCount += 1;
    if (!state.span().live || document.hidden) return;
    work(false);
    frame();
  },
  (word, why) => showLiveState(word, why),
);

function showLiveState(word, why = '') {
  const button = byId('live');
  button.dataset.state = word;
  button.setAttribute('aria-pressed', String(word === 'live'));
  button.title = why || (word === 'live' ? 'Each second is shown as it ends; press to pause' : 'Press to go on');
  setText(button.lastElementChild, { live: 'Live', paused: 'Paused', lost: 'No connection' }[word]);
}

function listen() {
  if (state.span().live && !document.hidden) live.start();
  else {
    live.stop();
    if (!document.hidden) showLiveState('paused');
  }
}

function follow() {
  const span = state.span();
  if (span.live) state.zoom(span.from, span.to);
  else state.go(state.screen(), { from: null, to: null, last: null });
}

// The frame around the screens.

function frame() {
  const span = state.span();
  for (const button of byId('presets').children) button.setAttribute('aria-pressed', String(button.dataset.last === span.name));
  for (const link of byId('nav').children) link.setAttribute('href', state.link(link.dataset.screen, link.dataset.screen === state.screen() ? { explain: null, limit: null, route: null, key: null, at: null } : {}));
  byId('compare').value = state.param('cmp') || '';
  setText(byId('span'), `${between(span.from, span.to)}${inUtc() ? ' UTC' : ''} · ${formatDuration(span.length)}`);
}

function build() {
  const titles = { now: 'Now', throttles: 'Throttles', routes: 'Routes', keys: 'Keys', policies: 'Policies', tail: 'Tail', health: 'Health' };
  put(byId('nav'), state.SCREENS.map((name, at) => h('a', { href: `#${name}`, 'data-screen': name, id: `nav-${name}`, title: `${titles[name]} (${at + 1})` }, titles[name])));
  put(byId('presets'), PRESETS.map((last) => h('button', { type: 'button', 'data-last': last, onclick: () => state.go(state.screen(), { last, from: null, to: null }) }, last)));
  for (const id of ['live', 'theme', 'keys-help', 'time']) byId(id).hidden = false;
  byId('live').onclick = follow;
  byId('pan-left').onclick = () => state.pan(-0.5);
  byId('pan-right').onclick = () => state.pan(0.5);
  byId('zoom-back').onclick = state.back;
  byId('compare').onchange = (event) => state.go(state.screen(), { cmp: event.target.value });
  byId('keys-help').onclick = () => byId('help').showModal();
  byId('help').onclick = (event) => {
    if (event.target === byId('help')) byId('help').close();
  };
  theme();
  picker();
  token();
}

function theme() {
  const button = byId('theme');
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const wear = (which) => {
    if (which === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = which;
    setText(button, { auto: '◐', dark: '☾', light: '☀' }[which]);
    button.title = `Colours: ${which}`;
    button.setAttribute('aria-label', `Colours: ${which}`);
    recolour();
  };
  let worn = localStorage.getItem('tollgate-theme') || 'auto';
  button.onclick = () => {
    const order = dark.matches ? ['auto', 'light', 'dark'] : ['auto', 'dark', 'light'];
    worn = order[(order.indexOf(worn) + 1) % 3];
    localStorage.setItem('tollgate-theme', worn);
    wear(worn);
  };
  dark.onchange = recolour;
  wear(worn);
}

function moment(text) {
  const said = text.trim();
  const ago = said.startsWith('-') ? state.parseDuration(said.slice(1)) : null;
  if (ago) return state.now() - ago;
  if (/^\d{9,11}$/.test(said)) return Number(said);
  const zone = inUtc() ? 'Z' : '';
  const today = new Date(Date.now() - (inUtc() ? 0 : new Date().getTimezoneOffset() * 60000)).toISOString().slice(0, 10);
  const time = /^\d{1,2}:\d{2}(:\d{2})?$/.test(said) ? `${today}T${said.padStart(said.length === 4 || said.length === 7 ? said.length + 1 : 0, '0')}` : said.replace(' ', 'T');
  const at = Date.parse(/(Z|[+-]\d\d:?\d\d)$/.test(time) ? time : `${time.includes('T') ? time : `${time}T00:00`}${zone}`);
  return Number.isFinite(at) ? Math.floor(at / 1000) : null;
}

function picker() {
  const form = byId('picker');
  const open = (shown) => {
    form.hidden = !shown;
    byId('picker-open').setAttribute('aria-expanded', String(shown));
    if (shown) byId('picker-from').focus();
  };
  byId('picker-open').onclick = () => open(form.hidden);
  byId('utc').checked = inUtc();
  byId('utc').onchange = (event) => {
    setUtc(event.target.checked);
    view.identity = '';
    show();
  };
  form.onkeydown = (event) => {
    if (event.key === 'Escape') open(false);
  };
  form.onsubmit = (event) => {
    event.preventDefault();
    const [from, to] = ['picker-from', 'picker-to'].map((id) => byId(id).value);
    const first = moment(from);
    const end = to.trim() && to.trim() !== 'now' ? moment(to) : undefined;
    const trouble = byId('picker-trouble');
    trouble.hidden = !(first === null || end === null || (end && end <= first));
    if (!trouble.hidden) {
      setText(trouble, first === null || end === null ? 'Neither a time nor a span before now.' : 'The end lies before the beginning.');
      return;
    }
    open(false);
    state.go(state.screen(), { last: null, from: first, to: end });
  };
}

function token() {
  const form = byId('token-form');
  onTokenNeeded(() => {
    if (!form.hidden) return;
    form.hidden = false;
    byId('token').focus();
  });
  form.onsubmit = async (event) => {
    event.preventDefault();
    const entered = byId('token').value.trim();
    const trouble = byId('token-trouble');
    trouble.hidden = true;
    try {
      await checkToken(entered);
    } catch (error) {
      trouble.hidden = false;
      setText(trouble, error.message);
      return;
    }
    storeToken(entered);
    byId('token').value = '';
    form.hidden = true;
    live.stop();
    name();
    show();
  };
}

async function name() {
  try {
    const [status, operator] = await Promise.all([get('status'), learnRights()]);
    state.setLatestSecond(status.now - 1);
    const who = operator.name ? ` · ${operator.name} (${operator.rights})` : '';
    setText(byId('gateway'), `${status.gateway} · ${status.version}${who}`);
  } catch {
    // The screens show the error.
  }
}

// Keys.

function pressed(event) {
  const typing = event.target.closest?.('input, select, textarea, dialog');
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const number = Number(event.key);
  if (number >= 1 && number <= state.SCREENS.length) location.hash = byId(`nav-${state.SCREENS[number - 1]}`).getAttribute('href');
  else if (event.key === '/') {
    const search = main.querySelector('input[type=search]');
    if (search) search.focus();
    else location.hash = state.link('keys', { focus: '1' });
  } else if (event.key === '?') byId('help').showModal();
  else if (event.key === 'u') state.back();
  else if (event.key === 'l') follow();
  else if (event.key === '[' || event.key === ']') state.pan(event.key === '[' ? -0.5 : 0.5);
  else if (event.key === 'e') main.querySelector('a.explain')?.click();
  else return;
  event.preventDefault();
}

byId('top').parentElement.querySelector('.skip').onclick = (event) => {
  event.preventDefault();
  main.focus();
};
build();
name();
addEventListener('hashchange', show);
addEventListener('ordered', show);
addEventListener('keydown', pressed);
document.addEventListener('visibilitychange', () => {
  listen();
  if (!document.hidden && state.span().live) work(true);
});
show();
