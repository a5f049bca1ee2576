// Requests to the admin listener: JSON, ranges of series that grow at their end, and the stream of seconds. Also the
// arithmetic on ranges. Only paths beside the page are requested, and only `send` changes something on the gateway.

const TOKEN = 'tollgate-token';
let askForToken = () => {};

export function onTokenNeeded(ask) {
  askForToken = ask;
}

/** Asks the gateway once whether a token lets in, before it is stored. */
export async function checkToken(token) {
  let response;
  try {
    response = await fetch('v1/whoami', { cache: 'no-store', headers: { authorization: `Bearer ${token}` } });
  } catch {
    throw statusError('the gateway does not respond, or this is no token');
  }
  if (response.ok) return;
  const words = { 401: 'This token is wrong, or has expired.', 429: 'Too many wrong tokens came from this address; try again in some seconds.' };
  throw statusError(words[response.status] || `status ${response.status}`);
}

export function storeToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** An error whose text is shown in place of the data. */
const statusError = (text) => Object.assign(new Error(text), { status: true });

async function fetchPath(path, signal, options = {}) {
  let response;
  const token = sessionStorage.getItem(TOKEN);
  try {
    response = await fetch(path, { signal, cache: 'no-store', ...options, headers: { ...headers(), ...options.headers } });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw statusError('the gateway does not respond; is it running?');
  }
  if (response.ok) return response;
  if (response.status === 401) {
    // A wrong token is not sent again and again, because the gateway bounds guesses.
    if (token && token === sessionStorage.getItem(TOKEN)) storeToken('');
    askForToken();
  }
  let body = {};
  try {
    body = await response.json();
  } catch {
    // The body is not JSON, so only the status is shown.
  }
  throw statusError(body.detail || body.title || `status ${response.status}`);
}

/** Fetches JSON below `v1/`. Parameters that are null or empty are left out, except `by`. */
export async function get(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value === null || value === undefined || (value === '' && name !== 'by')) continue;
    query.set(name, value);
  }
  const text = query.toString();
  const response = await fetchPath(`v1/${path}${text ? `?${text}` : ''}`, signal);
  return response.json();
}

/** Sends an order below `v1/`, and returns the JSON of the response. */
export async function send(method, path, body = undefined) {
  const options = { method };
  if (body) Object.assign(options, { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } });
  const response = await fetchPath(`v1/${path}`, undefined, options);
  return response.json();
}

/** The value of a label, as selectors write it. */
export const quoted = (text) => `"${text.replace(/\\/g, '\\\\').replace(/"/g, '\\"').replace(/\n/g, '\\n')}"`;

const labelsKey = (labels) => JSON.stringify(Object.entries(labels).sort());
const VALUE_LISTS = ['sum', 'min', 'max'];

/** Series of the record that are read again and again. While the span is live, only new buckets are fetched. */
export class Range {
  constructor(series, options = {}) {
    this.series = series;
    this.options = options;
    this.asked = '';
    this.held = null;
  }

  /** The values of the span in at most `points` buckets. */
  async read({ from, to, live, length, name }, points, signal) {
    const most = Math.max(2, Math.min(4000, points));
    const asked = live ? `${name || from}/${name ? length : 0}/${most}` : '';
    const held = this.held;
    if (live && asked === this.asked && held) {
      const start = held.from + (held.covered.length - 2) * held.step;
      const count = Math.max(2, Math.ceil((to - start) / held.step));
      if (start >= held.from && count < most / 3) {
        const end = start + count * held.step;
        const fresh = await this.fetchBuckets(start, end, count, signal);
        if (fresh.step === held.step && fresh.from === start && this.held === held) {
          this.held = joinRanges(held, fresh, from, to);
          return this.held;
        }
      }
    }
    const all = await this.fetchBuckets(from, to, most, signal);
    this.asked = asked;
    this.held = joinRanges(null, all, from, to);
    return this.held;
  }

  fetchBuckets(from, to, points, signal) {
    return get('record/range', { series: this.series, from, to, points, ...this.options }, signal);
  }
}

function emptySeries(series, count) {
  const empty = { labels: series.labels, kind: series.kind };
  for (const list of VALUE_LISTS) if (series[list]) empty[list] = new Array(count).fill(0);
  if (series.quantiles) {
    const each = Object.keys(series.quantiles).map((of) => [of, new Array(count).fill(null)]);
    empty.quantiles = Object.fromEntries(each);
  }
  return empty;
}

/** Joins the held buckets and the fresh buckets behind them; buckets outside of the span are dropped. */
function joinRanges(held, fresh, from, to) {
  const { step } = fresh;
  const begin = held ? held.from : fresh.from;
  const kept = held ? (fresh.from - begin) / step : 0;
  const drop = Math.max(0, Math.floor((from - begin) / step));
  const end = Math.max(kept + 1, Math.ceil((to - begin) / step));
  const mix = (old, young) => old.slice(0, kept).concat(young).slice(drop, end);
  const count = fresh.covered.length;
  const young = new Map(fresh.series.map((series) => [labelsKey(series.labels), series]));
  const old = new Map((held ? held.series : []).map((series) => [labelsKey(series.labels), series]));
  const series = [];
  for (const name of new Set([...old.keys(), ...young.keys()])) {
    const b = young.get(name) || emptySeries(old.get(name), count);
    const a = old.get(name) || emptySeries(b, kept);
    const one = { labels: b.labels, kind: b.kind };
    for (const list of VALUE_LISTS) if (b[list]) one[list] = mix(a[list] || [], b[list]);
    if (b.quantiles) {
      const each = Object.keys(b.quantiles).map((of) => [of, mix(a.quantiles[of], b.quantiles[of])]);
      one.quantiles = Object.fromEntries(each);
    }
    series.push(one);
  }
  const covered = mix(held ? held.covered : [], fresh.covered);
  return { from: begin + drop * step, step, covered, series };
}

/** The rate per second of each bucket; null where nothing was recorded. */
export function rates(range, series) {
  return range.covered.map((covered, at) => (covered ? (series ? series.sum[at] : 0) / covered : null));
}

/** A line of a chart, from a series of a range. It has a band of minima and maxima if buckets are longer than a second. */
export function line(range, series, key, label, more = {}) {
  const seen = (list) => (list ? list.map((value, at) => (range.covered[at] ? value : null)) : null);
  const banded = series?.min && range.step > 1;
  return {
    key,
    label,
    colour: key,
    y: rates(range, series),
    low: banded ? seen(series.min) : null,
    high: banded ? seen(series.max) : null,
    ...more,
  };
}

/** The lines of a chart for a range that was read with quantiles. */
export function quantiles(range) {
  const known = range.series[0]?.quantiles || {};
  return ['p99', 'p95', 'p50'].map((key, at) => ({
    key, label: key, colour: at ? 'quiet' : 'accent', y: known[{ p99: '0.99', p95: '0.95', p50: '0.5' }[key]] || range.covered.map(() => null),
  }));
}

/** The sum of the series whose labels are `wanted`; null if there are none. */
export function sumSeries(range, wanted = () => true) {
  const chosen = range.series.filter((series) => wanted(series.labels));
  if (!chosen.length) return null;
  const sum = range.covered.map((_, at) => chosen.reduce((total, series) => total + series.sum[at], 0));
  return { labels: {}, sum };
}

/** The mean rate of the last `most` seconds of a range that is live, or else of the whole range. */
export function recentMean(range, series, live, most = 3) {
  let [sum, covered] = [0, 0];
  for (let at = range.covered.length - 1; at >= 0 && !(live && covered >= most); at -= 1) {
    sum += range.covered[at] && series ? series.sum[at] : 0;
    covered += range.covered[at];
  }
  return { value: covered ? sum / covered : null, covered, sum };
}

/** The seconds from `from` to `to` that were recorded. Of a bucket that lies partly in them, that part. */
export function recordedSeconds(range, from, to) {
  return range.covered.reduce((sum, covered, at) => {
    const start = range.from + at * range.step;
    const common = Math.min(to, start + range.step) - Math.max(from, start);
    return common > 0 ? sum + (covered * common) / range.step : sum;
  }, 0);
}

/** The first series of a range that has these labels. */
export function findSeries(range, labels) {
  const wanted = Object.entries(labels);
  return range.series.find((series) => wanted.every(([name, value]) => series.labels[name] === value));
}

/** The quantile `of` of some values, such as 0.5 for the median; 0 without values. */
export function percentile(values, of) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * of))] : 0;
}

/** The indices [first, last] of the run of unusually high values around the index `at`; [at, at] if there is no run. */
export function runAround(values, at) {
  const usual = percentile(values, 0.3);
  const peak = Math.max(...values.slice(Math.max(0, at - 2), at + 3).map((value) => value || 0));
  const bar = usual + (peak - usual) * 0.2;
  if (peak <= usual * 1.5 + 0.1) return [at, at];
  const over = (index) => index >= 0 && index < values.length && values[index] !== null && values[index] > bar;
  // A click beside a narrow spike means the spike.
  const start = [at, at - 1, at + 1, at - 2, at + 2].find(over) ?? at;
  let [first, last] = [start, start];
  while (over(first - 1) || over(first - 2)) first -= 1;
  while (over(last + 1) || over(last + 2)) last += 1;
  return [first, last];
}

/** All runs of unusually high values, the run with the highest peak first. */
export function runs(values) {
  const usual = percentile(values, 0.3);
  const bar = Math.max(1, usual * 4);
  const found = [];
  for (let at = 0; at < values.length; at += 1) {
    if (values[at] === null || values[at] <= bar) continue;
    let top = at;
    for (let next = at; values[next] > bar || values[next + 1] > bar; next += 1) {
      if (values[next] > values[top]) top = next;
    }
    const [first, last] = runAround(values, top);
    found.push({ first: Math.min(first, at), last: Math.max(last, top), peak: values[top] });
    at = Math.max(last, top) + 1;
  }
  return found.sort((a, b) => b.peak - a.peak);
}

/** Caches the result of `work` for `after` seconds, or until it is called with another first argument. */
export function cached(after, work) {
  let [held, of, at] = [null, null, 0];
  return async (sign, ...asked) => {
    if (sign !== of || performance.now() - at > after * 1000) {
      held = await work(...asked);
      [of, at] = [sign, performance.now()];
    }
    return held;
  };
}

const same = (span) => (span.live ? span.name || span.from : `${span.from}-${span.to}`);

/** Returns a function that reads the events of a span, such as reloads and starts. */
export function eventReader() {
  const read = cached(10, async (span, signal) => (await get('record/events', { from: span.from, to: span.to, audit: false }, signal)).events);
  return (span, signal) => read(same(span), span, signal);
}

/** Returns a function that reads a series `by` seconds earlier than the span; null if `by` is 0. */
export function earlierRange(series) {
  const range = new Range(series);
  const read = cached(10, (span, by, points, signal) => range.read({ from: span.from - by, to: span.to - by + 60, live: false }, points, signal));
  return (span, by, points, signal) => (by ? read(`${same(span)} ${by} ${points}`, span, by, points, signal) : null);
}

/** All limits, with the place where each is written and its guarantee. */
export const fetchLimits = cached(20, async () => (await get('limits')).limits);

/** Whether limits are loaded, and all of them are in shadow mode: nothing is refused. */
export function allShadow(limits) {
  const own = limits.filter((limit) => !limit.try);
  return own.length > 0 && own.every((limit) => limit.shadow);
}

export const policies = cached(20, () => get('policies'));

/** The stream of completed seconds, which is opened again when it breaks. */
export class Live {
  constructor(onSecond, onState) {
    this.onSecond = onSecond;
    this.onState = onState;
    this.stopper = null;
  }

  start() {
    if (this.stopper) return;
    this.stopper = new AbortController();
    this.run(this.stopper.signal);
  }

  stop() {
    this.stopper?.abort();
    this.stopper = null;
  }

  async run(signal) {
    for (let wait = 1; !signal.aborted; wait = Math.min(wait * 2, 10)) {
      try {
        const response = await fetchPath('v1/record/live', signal);
        await this.listen(response.body.getReader(), signal, () => {
          wait = 1;
        });
      } catch (error) {
        if (signal.aborted) return;
        this.onState('lost', error.message);
      }
      if (signal.aborted) return;
      this.onState('lost', 'the stream of seconds ended');
      await new Promise((done) => setTimeout(done, wait * 1000));
    }
  }

  async listen(reader, signal, onGood) {
    const decoder = new TextDecoder();
    let text = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done || signal.aborted) return;
      text += decoder.decode(value, { stream: true });
      const parts = text.split(/\r?\n\r?\n/);
      text = parts.pop().slice(-4096);
      // Only the last event counts: the data of the seconds before it is fetched with it.
      const body = parts.filter((part) => /^event: ?second$/m.test(part)).pop();
      const data = body && /^data: ?(.*)$/m.exec(body);
      if (!data) continue;
      onGood();
      this.onState('live', '');
      this.onSecond(JSON.parse(data[1]).at);
    }
  }
}
