// What comes while the network runs, and everything that follows from it.

const MOST_ROWS = 64;
const MOST_SAMPLES = 300;

const live = { samples: [], losses: [], epochs: [], method: 0, when: '', link: null, pinned: false, drawing: null, rows: new Map(), faults: null, listed: undefined };
const every = Array.from({ length: nLinks }, (_, link) => link);
const chosenMethod = () => methods[live.method] || methods[0];
const sum = (values) => values.reduce((total, value) => total + value, 0);

// ---- figures -----------------------------------------------------------------------------------

const packetsOf = (link) => live.samples.at(-1)?.packets[link] ?? 0;
// Losses are read more seldom than packets: their share is of the packets of that time.
const dropsOf = (link) => live.losses.at(-1)?.drops[link] ?? 0;
const dropsText = (link) => (live.losses.length ? count(dropsOf(link)) : '–');
const lossOf = (link) => (dropsOf(link) ? dropsOf(link) / (live.losses.at(-1).packets[link] + dropsOf(link)) : 0);
const lossText = (link) => (live.losses.length ? percent(lossOf(link)) : '–');

// What was counted of it between two samples, a second.
function perSecond(of, now, before) {
  return before ? (of(now) - of(before)) / Math.max(now.at - before.at, 1e-3) : 0;
}

function busyOf(link) {
  return perSecond((sample) => sample.packets[link], live.samples.at(-1), live.samples.at(-2));
}

function trace(samples, of) {
  return samples.slice(1).map((sample, i) => [sample.at, perSecond(of, sample, samples[i])]);
}

// ---- the drawing -------------------------------------------------------------------------------

function draw() {
  if (!data.whole) return;
  live.drawing = new Drawing(byId('drawing'), every, fabric.names.map((_, s) => s));
  const { svg: picture } = live.drawing;
  picture.addEventListener('pointermove', (event) => event.pointerType !== 'touch' && point(live.drawing.nearest(event, () => true, 8)));
  picture.addEventListener('pointerleave', () => point(null));
  picture.addEventListener('click', (event) => pin(live.drawing.nearest(event, () => true, 12), false));
  picture.addEventListener('keydown', steer);
  showFaults();
}

function showFaults() {
  if (!live.drawing) return;
  for (const link of every) live.drawing.drawLink(link);
  if (live.when) live.drawing.judge(chosenMethod(), chosenMethod().flagged, () => true);
}

function showTraffic() {
  if (!live.drawing || live.samples.length < 2) return;
  const busy = every.map(busyOf);
  const most = Math.max(...busy, 1);
  for (const [link, path] of live.drawing.paths) {
    path.style.strokeWidth = faulty.has(link) ? '' : `${(0.6 + 3 * Math.sqrt(Math.max(busy[link], 0) / most)).toFixed(2)}px`;
  }
}

function point(link) {
  live.link = link === null ? live.pinned : link;
  if (live.drawing) live.drawing.choose(live.link === false ? null : live.link);
  showPanel();
}

function pin(link, scroll) {
  live.pinned = link === null ? false : link;
  point(null);
  if (scroll) byId('fabric').scrollIntoView({ block: 'start' });
}

function steer(event) {
  const own = [...judged(chosenMethod(), chosenMethod().flagged).keys()];
  const order = event.key.endsWith('Left') || event.key.endsWith('Right') ? (own.length ? own : every) : every;
  const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
  if (event.key === 'Escape') pin(null);
  else if (step) pin(order.at((order.indexOf(live.pinned) + step + order.length) % order.length));
  else return;
  event.preventDefault();
}

// ---- what is said ------------------------------------------------------------------------------

function showPanel() {
  const panel = byId('panel');
  const link = live.link;
  if (link === false || link === null) {
    if (live.listed === live.faults) return; // a button that is replaced loses focus and clicks
    live.listed = live.faults;
    const broken = [...faulty].sort((a, b) => data.links.rate[b] - data.links.rate[a]).slice(0, 24);
    const items = broken.map((each) => el('li', {}, linkButton(each), ` ${percent(data.links.rate[each])}`));
    panel.replaceChildren(el('h3', {}, broken.length ? 'Broken now' : 'Nothing is broken now'), el('ul', { class: 'broken' }, ...items), el('p', { class: 'hint' }, 'Point at a link, tap it, or focus the drawing and use the arrow keys: here is then what is counted of it.'));
    return;
  }
  live.listed = undefined;
  const said = status(chosenMethod(), chosenMethod().flagged, link);
  const pairs = [['truth', truthOf(link)], ['packets', count(packetsOf(link))], ['dropped by faults', dropsText(link)], ['share dropped', lossText(link)]];
  if (live.when) pairs.push([`${chosenMethod().name}, ${live.when}`, WORDS[verdictOn(chosenMethod(), said, link)]]);
  panel.replaceChildren(el('h3', { class: 'name' }, linkName(link)), facts(pairs), el('h4', {}, 'packets a second'), timeChart(trace(live.samples, ({ packets }) => packets[link]), count, '', 230), el('h4', {}, 'dropped a second'), timeChart(trace(live.losses, ({ drops }) => drops[link]), count, 'lost', 230));
}

function showVerdict() {
  const method = chosenMethod();
  const sums = tally(method, method.flagged);
  byId('methods').hidden = methods.length < 2;
  byId('verdict').textContent = live.when ? `${method.name}, ${live.when}: ${sums.right} found, ${sums.missed} missed, ${sums.wrong} blamed wrongly${method.undirected ? ', of undirected links' : ''}.` : '';
  showFaults();
  showPanel();
}

function rowOfLink(link) {
  if (!live.rows.has(link)) {
    const cells = ['td', 'td', 'td', 'td', 'td', 'td'].map((tag, i) => el(tag, { class: i === 1 ? '' : 'number' }));
    live.rows.set(link, el('tr', {}, el('th', { scope: 'row' }, linkButton(link)), ...cells));
  }
  const row = live.rows.get(link);
  const said = live.when ? status(chosenMethod(), chosenMethod().flagged, link) : '';
  const set = (i, value, ...shown) => {
    row.cells[i].dataset.value = value;
    row.cells[i].replaceChildren(...shown);
  };
  set(1, faulty.has(link) ? data.links.rate[link] : '', faulty.has(link) ? percent(data.links.rate[link]) : 'healthy');
  const word = WORDS[verdictOn(chosenMethod(), said, link)];
  set(2, word, ...(live.when ? [...(said ? [legendMark(said)] : []), ` ${word}`] : ['–']));
  set(3, packetsOf(link), count(packetsOf(link)));
  set(4, busyOf(link), count(busyOf(link)));
  set(5, dropsOf(link), dropsText(link));
  set(6, lossOf(link), lossText(link));
  return row;
}

function listLinks() {
  const rank = (link) => (faulty.has(link) || status(chosenMethod(), chosenMethod().flagged, link) ? 1e15 : 0) + dropsOf(link);
  const order = [...every].sort((a, b) => rank(b) - rank(a) || a - b).slice(0, MOST_ROWS);
  const table = byId('links');
  const focused = document.activeElement;
  const rows = order.map(rowOfLink);
  const body = table.tBodies[0];
  const kept = new Set(rows);
  for (const row of [...body.rows]) if (!kept.has(row)) row.remove();
  rows.forEach((row, i) => body.rows[i] !== row && body.insertBefore(row, body.rows[i] || null));
  const column = [...table.tHead.rows[0].cells].findIndex((head) => head.hasAttribute('aria-sort'));
  if (column >= 0) sortBy(table, column, table.tHead.rows[0].cells[column].getAttribute('aria-sort') === 'descending');
  if (table.contains(focused)) focused.focus({ preventScroll: true });
}

function showTime() {
  const width = Math.min(300, byId('time').clientWidth - LABEL);
  byId('crossing').replaceChildren(timeChart(trace(live.samples, ({ packets }) => sum(packets)), count, '', width));
  byId('losing').replaceChildren(timeChart(trace(live.losses, ({ drops }) => sum(drops)), count, 'lost', width));
  if (!live.epochs.length) return;
  const figure_ = (title, values, text) => el('figure', {}, el('figcaption', {}, title), barChart(values, text, live.epochs.length));
  const shown = [figure_('packets that the upstream meters counted, by epoch', live.epochs.map((e) => e.sent), count), figure_('of them lost before the downstream meters', live.epochs.map((e) => (e.sent ? e.lost / e.sent : null)), percent)];
  byId('epochs').replaceChildren(...shown);
}

// ---- what comes --------------------------------------------------------------------------------

function setFaults(faults) {
  const now = faults.map(([link, rate]) => `${link}:${rate}`).join();
  if (live.faults === now) return;
  live.faults = now;
  faulty.clear();
  for (const [link, rate] of faults) {
    data.links.rate[link] = faulty.has(link) ? Math.max(rate, data.links.rate[link]) : rate;
    faulty.add(link);
  }
  showVerdict();
}

function keep(samples, sample) {
  samples.push(sample);
  if (samples.length > MOST_SAMPLES) samples.splice(1, 1);
}

const HEARD = {
  doing({ what, share: part }) {
    byId('status').textContent = part === undefined ? what : `${what}, ${Math.floor(100 * part)} %`;
    byId('share').hidden = part === undefined;
    byId('share').value = part || 0;
  },
  counters(sample) {
    keep(live.samples, sample);
    setFaults(sample.faults);
    const dropped = live.losses.length ? `${count(sum(live.losses.at(-1).drops))} dropped by faults, ` : '';
    byId('sums').textContent = `${count(sum(sample.packets))} packets over links, ${dropped}${Math.round(sample.at)} s`;
    showTraffic();
    listLinks();
    showTime();
    showPanel();
  },
  losses(sample) {
    keep(live.losses, sample);
  },
  epoch(said) {
    live.epochs.push(said);
    if (said.flagged) {
      methods[0].flagged = new Set(said.flagged);
      live.when = `after ${said.number} of ${data.epochs.n} epochs`;
      showVerdict();
      listLinks();
    }
    showTime();
  },
  verdict({ when, methods: found }) {
    methods.length = 0;
    methods.push(...found.map((method) => withSets(method)));
    live.when = when;
    live.method = Math.min(live.method, methods.length - 1);
    byId('method').replaceChildren(...methodOptions(methods, live.method));
    showVerdict();
    listLinks();
  },
  end({ what }) {
    heard.close();
    byId('status').textContent = what;
    byId('share').value = 1;
  },
};

draw();
showVerdict();
showTime();
byId('method').addEventListener('change', (event) => {
  live.method = Number(event.target.value);
  showVerdict();
  listLinks();
});
const heard = new EventSource('events');
for (const [name, hear] of Object.entries(HEARD)) heard.addEventListener(name, (event) => hear(JSON.parse(event.data)));
heard.addEventListener('error', () => {
  heard.close();
  byId('status').textContent = 'ended: the run or network cannot be reached any more';
});

let room = byId('drawing').clientWidth;
addEventListener('resize', () => {
  if (Math.abs(byId('drawing').clientWidth - room) < 8) return;
  room = byId('drawing').clientWidth;
  draw();
  showTraffic();
  point(null);
});
