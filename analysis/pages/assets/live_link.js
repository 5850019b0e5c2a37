// What is said of one link while it goes on, and small charts over the time so far.

const WORDS = { right: 'found', wrong: 'blamed wrongly', missed: 'missed', unseen: 'not observed', '': 'healthy' };

function legendMark(kind) {
  const size = { width: 16, height: 16, viewBox: '-8 -8 16 16', class: 'inline', 'aria-hidden': 'true' };
  return svg('svg', size, mark(kind, [0, 0]));
}

function truthOf(link) {
  return faulty.has(link) ? `faulty, loses ${percent(data.links.rate[link])}` : 'healthy';
}

const LABEL = 100; // beside a chart, for "12,345,678 most"

// points: [seconds, value], ascending.
function timeChart(points, text, kind, width) {
  const height = 70;
  const [first, last] = [points[0]?.[0], points.at(-1)?.[0]];
  const most = Math.max(...points.map(([, value]) => value), 0);
  const x = (at) => ((at - first) / (last - first || 1)) * width;
  const y = (value) => 6 + (height - 8) * (1 - value / (most || 1));
  const line = points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(' ');
  if (!points.length) return el('p', { class: 'hint' }, 'not counted yet');
  const now = text(points.at(-1)[1]);
  const label = `now ${now}, at most ${text(most)}`;
  return svg('svg', { class: 'chart', role: 'img', 'aria-label': label, width: width + LABEL, height: height + 20 },
    svg('line', { class: 'grid', x1: 0, x2: width, y1: y(0), y2: y(0) }),
    svg('polyline', { class: `trace ${kind}`, points: line }),
    svg('text', { x: width + 6, y: 14 }, `${text(most)} most`),
    svg('text', { x: width + 6, y: height }, `${now} now`),
    svg('text', { x: 0, y: height + 16 }, `${Math.round(first)} s`),
    svg('text', { x: width, y: height + 16, class: 'end' }, `${Math.round(last)} s`));
}

function facts(pairs) {
  return el('dl', {}, ...pairs.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
}

function linkButton(link) {
  const button = el('button', { type: 'button', class: 'link-name' }, linkName(link));
  button.addEventListener('click', () => pin(link, true));
  return button;
}
