// What is said of one link: the truth, each method's verdict, and its epochs.

const LISTED_ERRORS = 9; // of a kind: the panel is no longer than the drawing
const WORDS = { right: 'found', wrong: 'blamed wrongly', missed: 'missed', unseen: 'not observed', '': 'healthy' };

function legendMark(kind) {
  const size = { width: 16, height: 16, viewBox: '-8 -8 16 16', class: 'inline', 'aria-hidden': 'true' };
  return svg('svg', size, mark(kind, [0, 0]));
}

function truthOf(link) {
  const rate = figure(data.links.rate, link);
  if (faulty.has(link)) return `faulty, loses ${percent(rate)}`;
  return rate ? `healthy, loses ${percent(rate)}` : 'healthy';
}

// From which epoch on a verdict was right and stayed right; null if it is wrong in the end.
function rightSince(method, link) {
  const known = early.get(method.name);
  if (!known) return undefined;
  const right = known.map((own) => ['right', ''].includes(status(method, own, link)));
  const last = right.lastIndexOf(false);
  return last === right.length - 1 ? null : last + 2;
}

// The verdict in words: what was not observed is not healthy, and what is blamed with others is said
// to be.
function wordOf(method, said, link) {
  const others = (method.alike.get(link) || []).filter((other) => !method.undirected || other >> 1 !== link >> 1);
  if (others.length) return `${WORDS[said]}: it or ${others.map(linkName).join(' or ')}`;
  return WORDS[verdictOn(method, said, link)];
}

function verdictRow(method, epochs, link, chosen) {
  const said = status(method, blamed(method, epochs), link);
  const since = rightSince(method, link);
  const when = since === undefined ? '' : since === null ? 'never' : `${since}`;
  return el(
    'tr',
    { class: method === chosen ? 'chosen' : '' },
    el('th', { scope: 'row' }, ...breakable(method.name + (method.undirected ? ' *' : ''))),
    el('td', {}, said ? legendMark(said) : null, ` ${wordOf(method, said, link)}`),
    el('td', { class: 'number' }, percent(figure(method.rate, link))),
    early.size ? el('td', { class: 'number' }, when) : null,
  );
}

function facts(link) {
  const said = [['truth', truthOf(link)]];
  const names = { packets: 'packets', fault_drops: 'dropped by faults and noise', queue_drops: 'dropped by full queues', emulator_drops: 'lost by the emulator' };
  for (const [column, name] of Object.entries(names)) {
    const value = figure(data.links[column], link);
    if (value !== undefined) said.push([name, count(value)]);
  }
  return el('dl', {}, ...said.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
}

function linkButton(link) {
  const button = el('button', { type: 'button', class: 'link-name' }, linkName(link));
  button.addEventListener('click', () => show(link));
  return button;
}

// F1 as the summary has it: a method that blames nothing where nothing is faulty is right.
// It is undefined, null, where nothing faulty was observed.
function f1Of(method, { right, wrong, missed, unseen }) {
  if (right + wrong + missed) return (2 * right) / (2 * right + wrong + missed);
  return unseen || method.unobserved.size === nLinks ? null : 1;
}

// Methods of each block from the best to the worst; one can be chosen by its name.
function ranking(chosen, epochs) {
  const scored = methods.map((method) => {
    const sums = tally(method, blamed(method, epochs));
    return { method, sums, f1: f1Of(method, sums) };
  });
  const row = ({ method, sums, f1 }) => {
    const whole = epochs < data.epochs.n && !early.has(method.name) ? ' (all epochs)' : '';
    const name = el('button', { type: 'button', class: 'choice' }, ...breakable(method.name + (method.undirected ? ' *' : '')));
    name.addEventListener('click', () => chooseMethod(method));
    const errors = ['missed', 'wrong'].map((kind) => el('td', { class: sums[kind] ? 'number bad' : 'number' }, count(sums[kind])));
    return el('tr', { class: method === chosen ? 'chosen' : '' }, el('th', { scope: 'row' }, name, whole), el('td', { class: 'number' }, f1 === null ? '–' : f1.toFixed(3)), ...errors);
  };
  const blocks = inBlocks(scored, ({ method }) => method.bench).map(([heading, own]) => block(heading, 4, own.sort((a, b) => b.f1 - a.f1).map(row)));
  const heads = ['method', 'F1', 'miss', 'wrong'].map((name, i) => el('th', { scope: 'col', class: i ? 'number' : '' }, name));
  const when = epochs < data.epochs.n ? `after ${epochs} of ${data.epochs.n} epochs` : '';
  return [el('h3', {}, `Ranking ${when}`), el('table', { class: 'verdicts', id: 'ranking' }, el('thead', {}, el('tr', {}, ...heads)), ...blocks)];
}

// With no link chosen: how the methods do, and where the chosen one errs.
function showErrors(panel, method, epochs, judgements) {
  const found = data.methods.length ? ranking(method, epochs) : [];
  for (const kind of ['missed', 'unseen', 'wrong']) {
    const links = judgements.filter(([, said]) => said === kind).map(([link]) => link);
    if (!links.length) continue;
    const items = links.slice(0, LISTED_ERRORS).map((link) => el('li', {}, linkButton(link)));
    const more = links.length > LISTED_ERRORS ? [el('li', {}, `and ${count(links.length - LISTED_ERRORS)} more, below`)] : [];
    found.push(el('h3', {}, legendMark(kind), ` ${WORDS[kind]} by ${method.name}`), el('ul', { class: 'errors' }, ...items, ...more));
  }
  if (!judgements.some(([, said]) => said !== 'right')) found.push(el('h3', {}, `${method.name} makes no mistake here`));
  panel.replaceChildren(...found, el('p', { class: 'hint' }, 'Point at a link, tap it, find it by name, or focus the drawing and use the arrow keys: here is then what is known of it.'));
}

function showLink(panel, link, method, epochs) {
  const heads = ['method', 'verdict', 'estimate', ...(early.size ? ['right since epoch'] : [])];
  const head = el('tr', {}, ...heads.map((name) => el('th', { scope: 'col' }, name)));
  const blocks = inBlocks(methods).map(([heading, own]) => block(heading, early.size ? 4 : 3, own.map((each) => verdictRow(each, epochs, link, method))));
  const hint = 'No method blames it. Of links like this one the page of a large fabric has no counts: they are in links.parquet.';
  panel.replaceChildren(
    el('h3', { class: 'name' }, linkName(link)),
    facts(link),
    ...(rowOf(link) === undefined ? [el('p', { class: 'hint' }, hint)] : []),
    el('table', { class: 'verdicts' }, el('thead', {}, head), ...blocks),
    ...linkEpochs(link, epochs),
  );
}

// Loss by epoch: on the segments over the link as the meters counted it, and the truth.
function linkEpochs(link, epochs) {
  const row = rowOf(link);
  const { n, segments, drops } = data.epochs;
  const found = [];
  const chosen = epochs < n ? epochs : 0;
  if (segments && row !== undefined) {
    const rates = segments.sent[row].map((sent, e) => (sent ? segments.lost[row][e] / sent : null));
    found.push(el('h4', {}, 'loss that the meters saw on segments over it, by epoch'), barChart(rates, percent, chosen));
  }
  const own = drops.filter(([each]) => each === link);
  if (own.length) {
    const lost = Array(n).fill(0);
    for (const [, epoch, packets] of own) lost[epoch] = packets;
    found.push(el('h4', {}, 'packets of the traffic that it truly lost, by epoch'), barChart(lost, count, chosen));
  }
  return found;
}
