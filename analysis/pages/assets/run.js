// What the reader chose, and everything that follows from it.

const LISTED = 200; // links in the table, before all are asked for
const FOUND = 12;

const state = { method: methods[0], epochs: data.epochs.n, tier: '', pod: '', link: null, pinned: false, all: false };
let drawing = null;

const flagged = () => blamed(state.method, state.epochs);
const shown = (link) =>
  (state.tier === '' || tierOf(link) === Number(state.tier)) && (state.pod === '' || podOf(link) === Number(state.pod));

// ---- the drawing -------------------------------------------------------------------------------

function draw() {
  const holder = byId('drawing');
  const asMatrices = !data.whole && state.pod === '';
  if (asMatrices) drawing = new Matrix(holder, openPod);
  else {
    const links = [];
    for (let link = 0; link < nLinks; link += 1) if (data.whole || podOf(link) === Number(state.pod)) links.push(link);
    const used = new Set(links.flatMap(ends));
    const switches = fabric.names.map((_, s) => s).filter((s) => data.whole || used.has(s));
    drawing = new Drawing(holder, links, switches);
    drawing.svg.addEventListener('focus', () => state.link === null && pin(inOrder()[0] ?? null));
  }
  drawing.root.addEventListener('pointermove', hover);
  drawing.root.addEventListener('pointerleave', () => point(null));
  drawing.root.addEventListener('keydown', steer);
  drawing.root.addEventListener('click', (event) => {
    if (!asMatrices) pin(drawing.nearest(event, shown, 12));
    else if (event.pointerType !== 'touch' && drawing instanceof Matrix) pin(drawing.nearest(event, shown) ?? state.link);
  });
  byId('matrixkeys').hidden = !asMatrices;
  byId('linekeys').hidden = asMatrices;
  byId('back').hidden = data.whole || asMatrices;
}

function hover(event) {
  if (event.pointerType === 'touch') return;
  const link = drawing.nearest(event, shown, 8);
  point(link);
  const tip = byId('tip');
  tip.hidden = link === null;
  if (link === null) return;
  tip.textContent = `${linkName(link)}: ${truthOf(link)}`;
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${event.clientY + 16}px`;
}

// Shown while it is pointed at; what is pinned comes back afterwards.
function point(link) {
  if (link === null) byId('tip').hidden = true;
  const now = link === null ? (state.pinned ? state.link : null) : link;
  drawing.choose(now);
  if (now !== null) showLink(byId('panel'), now, state.method, state.epochs);
  else showErrors(byId('panel'), state.method, state.epochs, [...judged(state.method, flagged())].filter(([each]) => shown(each)));
}

function pin(link) {
  state.link = link;
  state.pinned = link !== null;
  point(link);
}

// The links that the arrow keys go through: those that are faulty or blamed, as they are drawn.
function inOrder() {
  const own = [...judged(state.method, flagged()).keys()].filter((link) => shown(link) && drawing.has(link));
  return drawing.sorted(own.length ? own : drawing.links?.filter(shown) ?? []);
}

function steer(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step) {
    const order = inOrder();
    if (!order.length) return;
    const at = order.indexOf(state.link);
    pin(order.at((at < 0 ? (step > 0 ? 0 : -1) : at + step) % order.length) ?? null);
  } else if (['ArrowUp', 'ArrowDown'].includes(event.key) && state.link !== null) {
    const next = event.key === 'ArrowUp' ? state.link + 1 : state.link - 1;
    if (drawing.has(next)) pin(next);
  } else if (event.key === 'Escape') pin(null);
  else return;
  event.preventDefault();
}

// ---- what is chosen ----------------------------------------------------------------------------

function refresh() {
  const { method } = state;
  drawing.judge(method, flagged(), shown);
  const sums = tally(method, flagged());
  const late = early.size && state.epochs < data.epochs.n;
  const when = late ? (early.has(method.name) ? ` after ${state.epochs} of ${data.epochs.n} epochs` : ' with all epochs (the record does not know when its measurements were made)') : '';
  byId('verdict').textContent = `${method.name}${when}: ${sums.right} found, ${sums.missed} missed, ${sums.wrong} blamed wrongly${sums.unseen ? `, ${sums.unseen} not observed` : ''}${method.undirected ? ', of undirected links' : ''}.`;
  point(null);
  listLinks();
  scatter(byId('scatter'), method, flagged(), show);
  if (early.size) overTimeChart(byId('overtime'), state.epochs);
}

function chooseMethod(method) {
  state.method = method;
  byId('method').value = methods.indexOf(method);
  refresh();
  byId('panel').querySelector('.chosen .choice')?.focus();
}

// Draw a pod; all of them if it is ''.
function openPod(pod) {
  state.pod = String(pod);
  byId('pod').value = state.pod;
  draw();
  refresh();
}

function show(link) {
  if (!shown(link)) {
    state.tier = state.pod = byId('tier').value = byId('pod').value = '';
    if (!data.whole) draw();
    refresh();
  }
  pin(link);
  byId('fabric').scrollIntoView({ block: 'start' });
}

function options(select, values, name) {
  select.append(...values.map((value) => el('option', { value }, name(value))));
}

function makeControls() {
  byId('method').append(...methodOptions(methods));
  const numbers = (list) => [...new Set(list)].sort((a, b) => a - b);
  options(byId('tier'), numbers(fabric.tier).filter((tier) => tier < topTier), (tier) => `${tierName(tier)}–${tierName(tier + 1)}`);
  options(byId('pod'), numbers(fabric.pod).filter((pod) => pod >= 0), podName);
  byId('pod').options[0].textContent = data.whole ? 'all' : 'all, as matrices';
  byId('back').addEventListener('click', () => openPod(''));
  byId('method').addEventListener('change', (event) => { state.method = methods[event.target.value]; refresh(); });
  byId('tier').addEventListener('change', (event) => { state.tier = event.target.value; refresh(); });
  byId('pod').addEventListener('change', (event) => {
    state.pod = event.target.value;
    if (!data.whole) draw();
    refresh();
  });
  byId('epoch').addEventListener('input', (event) => {
    state.epochs = Number(event.target.value);
    byId('epochs').textContent = state.epochs === data.epochs.n ? `all ${data.epochs.n}` : `first ${state.epochs}`;
    refresh();
  });
}

// ---- finding by name ---------------------------------------------------------------------------

function find(text) {
  const wanted = text.trim().toLowerCase();
  const found = [];
  for (let link = 0; wanted && link < nLinks && found.length <= FOUND; link += 1) {
    const name = linkName(link).toLowerCase();
    if (name === wanted) found.unshift(link);
    else if (name.includes(wanted)) found.push(link);
  }
  return found;
}

function makeSearch() {
  const hits = byId('hits');
  const field = byId('search');
  field.addEventListener('input', () => {
    const found = find(field.value);
    const buttons = found.slice(0, FOUND).map((link) => {
      const button = el('button', { type: 'button' }, linkName(link));
      button.addEventListener('click', () => show(link));
      return button;
    });
    const more = found.length > FOUND ? ' and more' : '';
    hits.replaceChildren(...buttons, field.value.trim() && !found.length ? 'no such link' : more);
  });
  byId('finder').addEventListener('submit', (event) => {
    event.preventDefault();
    const [first] = find(field.value);
    if (first !== undefined) show(first);
  });
}

// ---- the table of links ------------------------------------------------------------------------

function linkRow(link) {
  const { method } = state;
  const said = status(method, flagged(), link);
  const rate = figure(data.links.rate, link);
  const estimate = figure(method.rate, link);
  const others = methods.filter((each) => ['right', 'wrong'].includes(status(each, each.flagged, link)));
  const cells = [
    el('th', { scope: 'row' }, linkButton(link)),
    el('td', { class: 'number', 'data-value': faulty.has(link) ? rate : '' }, faulty.has(link) ? percent(rate) : 'healthy'),
    el('td', { 'data-value': WORDS[said] }, said ? legendMark(said) : null, ` ${wordOf(method, said, link)}`),
    el('td', { class: 'number', 'data-value': estimate ?? '' }, percent(estimate)),
    ...['packets', 'fault_drops', 'queue_drops'].map((column) => el('td', { class: 'number', 'data-value': figure(data.links[column], link) }, count(figure(data.links[column], link)))),
    el('td', { class: 'number', 'data-value': others.length, title: others.map((each) => each.name).join(', ') }, `${others.length} of ${methods.length}`),
  ];
  return el('tr', { class: state.link === link ? 'chosen' : '' }, ...cells);
}

function listLinks() {
  const own = new Set(faulty);
  for (const method of methods) for (const link of method.flagged) own.add(link);
  const links = [...own].filter(shown).sort((a, b) => (figure(data.links.rate, b) - figure(data.links.rate, a)) || a - b);
  const table = byId('links');
  table.tBodies[0].replaceChildren(...links.slice(0, state.all ? Infinity : LISTED).map(linkRow));
  for (const head of table.tHead.rows[0].cells) head.removeAttribute('aria-sort');
  byId('nolinks').hidden = links.length > 0;
  byId('more').hidden = state.all || links.length <= LISTED;
  byId('more').textContent = `show all ${count(links.length)} links`;
}

// From which epoch on each method had each faulty link, where the record can tell.
function listSince() {
  const table = byId('since');
  const known = methods.filter((method) => early.has(method.name));
  table.tHead.rows[0].append(...known.map((method) => el('th', { scope: 'col' }, method.name)));
  const links = [...faulty].sort((a, b) => figure(data.links.rate, b) - figure(data.links.rate, a));
  const rows = links.map((link) => {
    const cells = known.map((method) => {
      const since = rightSince(method, link);
      return el('td', { class: 'number', 'data-value': since ?? '' }, since === null ? 'not found' : `${since}`);
    });
    return el('tr', {}, el('th', { scope: 'row' }, linkButton(link)), el('td', { class: 'number', 'data-value': figure(data.links.rate, link) }, percent(figure(data.links.rate, link))), ...cells);
  });
  table.tBodies[0].append(...rows);
  makeSortable(table);
  offerCsv(table);
}

// ---- epochs and packets ------------------------------------------------------------------------

function showEpochs() {
  const { counted, lost, rules, flows, n } = data.epochs;
  const holder = byId('epochcharts');
  const add = (title, values, text) => holder.append(el('figure', {}, el('figcaption', {}, title), barChart(values, text, 0)));
  if (counted) {
    add('packets that the upstream meters counted', counted, count);
    add('of them lost before the downstream meters', counted.map((sent, e) => (sent ? lost[e] / sent : null)), percent);
  }
  if (rules) {
    add('rules installed: flows on segments', rules, count);
    add('flows monitored', flows, count);
  }
  if (!counted) holder.append(el('p', { class: 'hint' }, `This record has no meters of its ${n} epochs.`));
}

draw();
makeControls();
makeSearch();
showEpochs();
if (early.size) listSince();
showPackets();
byId('more').addEventListener('click', () => { state.all = true; listLinks(); });
refresh();

let room = byId('drawing').clientWidth;
addEventListener('resize', () => {
  if (Math.abs(byId('drawing').clientWidth - room) < 8) return;
  room = byId('drawing').clientWidth;
  draw();
  refresh();
});
