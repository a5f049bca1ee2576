// Asks the admin listener: JSON, ranges that grow at their end and what is read off them, the stream of seconds.
// Only paths beside the page are asked for, nothing elsewhere, and nothing is changed.

const TOKEN = 'tollgate-token';
let askForToken = () => {};

export function onToken(ask) {
  askForToken = ask;
}

export function keepToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** What is shown where the answer would be. */
const problem = (text) => Object.assign(new Error(text), { status: true });

async function ask(path, signal) {
  let answer;
  try {
    answer = await fetch(path, { headers: headers(), signal, cache: 'no-store' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw problem('the gateway does not answer; is it running?');
  }
  if (answer.ok) return answer;
  if (answer.status === 401) askForToken();
  let said = {};
  try {
    said = await answer.json();
  } catch {
    // Not JSON: the status alone has to do.
  }
  throw problem(said.detail || said.title || `status ${answer.status}`);
}

/** Asks for JSON. Parameters that are null or empty are left out, but for `by`. */
export async function get(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value === null || value === undefined || (value === '' && name !== 'by')) continue;
    query.set(name, value);
  }
  const text = query.toString();
  const answer = await ask(`v1/${path}${text ? `?${text}` : ''}`, signal);
  return answer.json();
}

const named = (labels) => JSON.stringify(Object.entries(labels).sort());
const LISTS = ['sum', 'min', 'max'];

/** One question to the record, asked again and again: only what is new is asked for. */
export class Range {
  constructor(series, options = {}) {
    this.series = series;
    this.options = options;
    this.asked = '';
    this.held = null;
  }

  /** Everything in the span in at most `points` buckets. */
  async read({ from, to, live, length, name }, points, signal) {
    const most = Math.max(2, Math.min(4000, points));
    const asked = live ? `${name || from}/${name ? length : 0}/${most}` : '';
    const held = this.held;
    if (live && asked === this.asked && held) {
      const start = held.from + (held.covered.length - 2) * held.step;
      const count = Math.max(2, Math.ceil((to - start) / held.step));
      if (start >= held.from && count < most / 3) {
        const end = start + count * held.step;
        const fresh = await this.ask(start, end, count, signal);
        if (fresh.step === held.step && fresh.from === start && this.held === held) {
          this.held = joined(held, fresh, from, to);
          return this.held;
        }
      }
    }
    const all = await this.ask(from, to, most, signal);
    this.asked = asked;
    this.held = joined(null, all, from, to);
    return this.held;
  }

  ask(from, to, points, signal) {
    return get('record/range', { series: this.series, from, to, points, ...this.options }, signal);
  }
}

function blank(series, count) {
  const empty = { labels: series.labels, kind: series.kind };
  for (const list of LISTS) if (series[list]) empty[list] = new Array(count).fill(0);
  if (series.quantiles) {
    const each = Object.keys(series.quantiles).map((of) => [of, new Array(count).fill(null)]);
    empty.quantiles = Object.fromEntries(each);
  }
  return empty;
}

/** What was held up to where the fresh buckets begin, and these; nothing outside of the span. */
function joined(held, fresh, from, to) {
  const { step } = fresh;
  const begin = held ? held.from : fresh.from;
  const kept = held ? (fresh.from - begin) / step : 0;
  const drop = Math.max(0, Math.floor((from - begin) / step));
  const end = Math.max(kept + 1, Math.ceil((to - begin) / step));
  const mix = (old, young) => old.slice(0, kept).concat(young).slice(drop, end);
  const count = fresh.covered.length;
  const young = new Map(fresh.series.map((series) => [named(series.labels), series]));
  const old = new Map((held ? held.series : []).map((series) => [named(series.labels), series]));
  const series = [];
  for (const name of new Set([...old.keys(), ...young.keys()])) {
    const b = young.get(name) || blank(old.get(name), count);
    const a = old.get(name) || blank(b, kept);
    const one = { labels: b.labels, kind: b.kind };
    for (const list of LISTS) if (b[list]) one[list] = mix(a[list] || [], b[list]);
    if (b.quantiles) {
      const each = Object.keys(b.quantiles).map((of) => [of, mix(a.quantiles[of], b.quantiles[of])]);
      one.quantiles = Object.fromEntries(each);
    }
    series.push(one);
  }
  const covered = mix(held ? held.covered : [], fresh.covered);
  return { from: begin + drop * step, step, covered, series };
}

/** Rates of a range, nothing where nothing was recorded. */
export function rates(range, series) {
  return range.covered.map((covered, at) => (covered ? (series ? series.sum[at] : 0) / covered : null));
}

/** A line of a chart from a series of a range. */
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

/** The lines of a range with quantiles. */
export function quantiles(range) {
  const known = range.series[0]?.quantiles || {};
  return ['p99', 'p95', 'p50'].map((key, at) => ({
    key, label: key, colour: at ? 'quiet' : 'accent', y: known[{ p99: '0.99', p95: '0.95', p50: '0.5' }[key]] || range.covered.map(() => null),
  }));
}

/** The sum of some series of a range. */
export function summed(range, wanted = () => true) {
  const chosen = range.series.filter((series) => wanted(series.labels));
  if (!chosen.length) return null;
  const sum = range.covered.map((_, at) => chosen.reduce((total, series) => total + series.sum[at], 0));
  return { labels: {}, sum };
}

/** The mean of the last seconds of a range while it is live, of all of it otherwise. */
export function recent(range, series, live, most = 3) {
  let [sum, covered] = [0, 0];
  for (let at = range.covered.length - 1; at >= 0 && !(live && covered >= most); at -= 1) {
    sum += range.covered[at] && series ? series.sum[at] : 0;
    covered += range.covered[at];
  }
  return { value: covered ? sum / covered : null, covered, sum };
}

/** The series of a range with these labels. */
export function pick(range, labels) {
  const wanted = Object.entries(labels);
  return range.series.find((series) => wanted.every(([name, value]) => series.labels[name] === value));
}

/** Where the middle of sorted values lies, or another part of them. */
export function part(values, of) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * of))] : 0;
}

/** The contiguous run around a bucket that stands out from what is usual: [first, last]. */
export function runAround(values, at) {
  const usual = part(values, 0.3);
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

/** All runs of a list of values, the greatest first. */
export function runs(values) {
  const usual = part(values, 0.3);
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

/** An answer that is asked for again only after some seconds, or when something else is asked. */
export function kept(after, work) {
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

/** Reloads and starts within a span. */
export function happened() {
  const ask_ = kept(10, async (span, signal) => (await get('record/events', { from: span.from, to: span.to }, signal)).events);
  return (span, signal) => ask_(same(span), span, signal);
}

/** A range as it was some seconds earlier; null without a comparison. */
export function before(series) {
  const range = new Range(series);
  const ask_ = kept(10, (span, by, points, signal) => range.read({ from: span.from - by, to: span.to - by + 60, live: false }, points, signal));
  return (span, by, points, signal) => (by ? ask_(`${same(span)} ${by} ${points}`, span, by, points, signal) : null);
}

/** Where each limit is written, what it promises. */
export const written = kept(20, async () => (await get('limits')).limits);
export const policies = kept(20, () => get('policies'));

/** The stream of seconds, opened again when it breaks. */
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
        const answer = await ask('v1/record/live', signal);
        await this.listen(answer.body.getReader(), signal, () => {
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
      // Only the last counts: what lies before it was missed, and is asked for with it.
      const said = parts.filter((part) => /^event: ?second$/m.test(part)).pop();
      const data = said && /^data: ?(.*)$/m.exec(said);
      if (!data) continue;
      onGood();
      this.onState('live', '');
      this.onSecond(JSON.parse(data[1]).at);
    }
  }
}
