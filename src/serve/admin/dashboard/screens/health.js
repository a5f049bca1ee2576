// The screen Health: the gateway itself, its record, its push destinations, its store, and the servers behind it.

import { Range, get, line, rates, recentMean } from '../api.js';
import { Chart } from '../charts.js';
import { count, empty, full, h, formatDuration, panel, put, rate, share, size, spark, table } from '../ui.js';

const state = (word, good) => h('span', { class: `state ${good ? '' : 'bad'}` }, word);
const place = (row) => (row.address ? `${row.server} ${row.address}` : row.server);
const figure = (name, value, note) => h('div', {}, h('dt', {}, name), h('dd', {}, value, note ? h('small', {}, ` ${note}`) : null));

export function open() {
  const process = {
    cpu: new Range('process_cpu_seconds_total'),
    memory: new Range('process_resident_memory_bytes'),
    connections: new Range('tollgate_connections_open'),
  };
  const up = new Range('tollgate_upstream_server_up');
  const errors = new Range('tollgate_upstream_errors_total', { by: 'upstream' });
  const charts = {
    cpu: new Chart({ id: 'chart-cpu', label: 'Processor, cores in use', unit: 'rate', height: 140 }),
    memory: new Chart({ id: 'chart-memory', label: 'Memory in use', unit: 'bytes', height: 140 }),
    connections: new Chart({ id: 'chart-connections', label: 'Connections of clients', unit: 'count', height: 140 }),
  };
  const gateway = panel('gateway-health', 'Gateway');
  const record = panel('record', 'Record');
  const push = panel('push', 'Push');
  const servers = panel('servers', 'Upstream servers');
  const panels = { cpu: panel('cpu', 'Processor'), memory: panel('memory', 'Memory'), connections: panel('connections', 'Connections') };
  for (const name of Object.keys(panels)) panels[name].body.append(charts[name].root);

  const tiers = table('Tiers', [
    { name: 'step', title: 'Every', cell: (row) => row.step },
    { name: 'since', title: 'Kept for', n: true, cell: (row) => formatDuration(row.length) },
    { name: 'oldest', title: 'Oldest', cell: (row) => full(row.oldest) },
  ], { key: (row) => row.step });
  const recordFigures = h('dl', { class: 'numbers' });
  const recordTrouble = h('p', { class: 'trouble', hidden: true });
  record.body.append(recordFigures, recordTrouble, tiers.root);
  const pushes = table('Pushes', [
    { name: 'to', title: 'To', cell: (row) => [row.to, h('small', {}, row.url)] },
    { name: 'state', title: 'State', cell: (row) => state(row.trouble || 'sending', !row.trouble) },
    { name: 'behind', title: 'Behind', n: true, cell: (row) => formatDuration(row.behind_seconds) },
    { name: 'sent', title: 'Sent', n: true, cell: (row) => count(row.sent) },
    { name: 'refused', title: 'Refused', n: true, cell: (row) => count(row.refused) },
  ], { key: (row) => `${row.to} ${row.url}` });
  const noPush = empty('Nothing is pushed. The record can be sent on to Prometheus and others; /metrics can always be scraped.');
  push.body.append(pushes.root, noPush);
  const rows = table('Upstream servers', [
    { name: 'upstream', title: 'Upstream', cell: (row) => row.upstream, sort: (row) => row.upstream },
    { name: 'server', title: 'Server', cell: (row) => h('span', { class: 'key' }, place(row)) },
    { name: 'state', title: 'State', cell: (row) => state(row.state, row.state === 'up'), sort: (row) => row.state },
    { name: 'trend', title: 'Up over the span', wide: true, cell: (row) => spark(row.trend, 'accent') },
    { name: 'open', title: 'Open', n: true, cell: (row) => count(row.open), sort: (row) => row.open },
    { name: 'errors', title: 'Errors/s', n: true, wide: true, hint: 'of all servers of the upstream', cell: (row) => rate(row.errors) },
    { name: 'ejections', title: 'Ejections', n: true, cell: (row) => count(row.ejections), sort: (row) => row.ejections },
    { name: 'checks', title: 'Failed checks', n: true, wide: true, cell: (row) => count(row.failed_checks), sort: (row) => row.failed_checks },
    { name: 'weight', title: 'Weight', n: true, wide: true, cell: (row) => count(row.weight) },
  ], { key: (row) => `${row.upstream} ${place(row)}`, sort: 'upstream', down: false });
  const noServers = empty('No upstream is named in the gateway file.');
  servers.body.append(rows.root, noServers);
  let failing = null;
  let standing = null;

  async function status(_, signal) {
    const gatewayStatus = await get('status', {}, signal);
    const { record: kept } = gatewayStatus;
    const store = gatewayStatus.store || { kind: 'memory' };
    put(gateway.body, h('dl', { class: 'numbers' },
      figure('Name', gatewayStatus.gateway), figure('Version', gatewayStatus.version),
      figure('Up for', formatDuration(gatewayStatus.now - gatewayStatus.started), `since ${full(gatewayStatus.started)}`),
      figure('Store', state(store.kind, !/trouble|lost|down|fail|unreachable/i.test(store.state || '')), store.state)));
    recordTrouble.hidden = !!kept && !kept.trouble;
    recordTrouble.textContent = kept ? kept.trouble || '' : 'Nothing is recorded now: the gateway file says so, or another process still writes the record.';
    pushes.set(gatewayStatus.push || [], noPush);
    if (!kept) return;
    const fraction = kept.most_bytes ? kept.bytes / kept.most_bytes : 0;
    put(recordFigures,
      figure('Kept in', kept.where), figure('Size', size(kept.bytes), kept.most_bytes ? `of ${size(kept.most_bytes)}, ${share(fraction)}` : ''),
      figure('Series', count(kept.series)));
    tiers.set(kept.tiers.map((tier) => ({ ...tier, length: gatewayStatus.now - tier.oldest })));
  }
  async function behind(span, signal) {
    const found = await get('upstreams', {}, signal);
    const of = (upstream, server) => standing?.series.find((series) => series.labels.upstream === upstream && series.labels.server === server);
    rows.set(found.upstreams.flatMap((upstream) => upstream.servers.map((server) => {
      const bad = failing?.series.find((series) => series.labels.upstream === upstream.upstream);
      return { upstream: upstream.upstream, ...server, trend: standing ? rates(standing, of(upstream.upstream, server.server)) : [], errors: failing ? recentMean(failing, bad, span.live, 10).value : null };
    })), noServers);
  }
  const curve = (name, key, label, of, colour) => async (span, signal) => {
    const ranges = await Promise.all(of.map((one) => process[one].read(span, charts[name].bucketCount(), signal)));
    const lines = ranges.map((range, at) => line(range, range.series[0], key[at], label[at], { colour: colour[at], dash: at ? [7, 4] : undefined }));
    charts[name].draw(ranges[0], lines, { span });
  };
  const jobs = [
    gateway.job(5, status),
    servers.job(10, async (span, signal) => { failing = await errors.read(span, 60, signal); }),
    servers.job(10, async (span, signal) => { standing = await up.read(span, 60, signal); }),
    servers.job(2, behind),
    panels.cpu.job(2, curve('cpu', ['cpu'], ['cores'], ['cpu'], ['accent'])),
    panels.memory.job(3, curve('memory', ['memory'], ['resident'], ['memory'], ['accent'])),
    panels.connections.job(3, curve('connections', ['connections'], ['open'], ['connections'], ['accent'])),
  ];
  return {
    title: 'Health',
    parts: [gateway.root, h('div', { class: 'three' }, Object.values(panels).map((one) => one.root)), servers.root, h('div', { class: 'two' }, record.root, push.root)],
    charts: Object.values(charts),
    jobs,
  };
}
