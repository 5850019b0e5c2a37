// Figures over the values of a setting, and the curves at one of them.

const series = data.labels.map((label, i) => ({ label, i, bench: data.benches[i], points: data.points.map((own) => own[i]) }));
const asNumbers = data.values.map(Number);
const numeric = asNumbers.every((value) => Number.isFinite(value));
const logarithmic = numeric && Math.min(...asNumbers) > 0 && Math.max(...asNumbers) / Math.min(...asNumbers) >= 20;
const scaled = asNumbers.map((value, i) => (numeric ? (logarithmic ? Math.log(value) : value) : i));
let drawn = null;

function showChart() {
  const holder = byId('chart');
  const figure = byId('figure').value;
  byId('what').textContent = byId('figure').selectedOptions[0].textContent;
  const names = data.values.map((value) => short(value, 14));
  const [left, right] = [Math.max(46, 5.6 * names[0].length - 12), Math.max(20, 3.5 * names.at(-1).length - 12)];
  const height = 300;
  const width = Math.max(200, Math.min(860, holder.clientWidth - left - right));
  const [low, high] = [Math.min(...scaled), Math.max(...scaled)];
  const x = (i) => left + 16 + ((width - 32) * (scaled[i] - low)) / (high - low || 1);
  const least = floorOf(figure);
  const y = (value) => 10 + (height * (1 - value)) / (1 - least);
  const parts = [svg('text', { class: 'middle', transform: `translate(10 ${10 + height / 2}) rotate(-90)` }, byId('what').textContent)];
  for (let tick = Math.round(10 * least); tick <= 10; tick += least < 0.5 ? 2 : 1) {
    parts.push(svg('line', { class: 'grid', x1: left, x2: left + width, y1: y(tick / 10), y2: y(tick / 10) }), svg('text', { class: 'end', x: left - 6, y: y(tick / 10) + 4 }, (tick / 10).toFixed(1)));
  }
  const room = width / data.values.length;
  const tilted = names.some((name) => room < 7 * name.length);
  data.values.forEach((value, i) => {
    parts.push(svg('line', { class: 'grid', x1: x(i), x2: x(i), y1: y(least), y2: y(1) }));
    const at = tilted ? { class: 'end', transform: `translate(${x(i) + 4} ${y(least) + 16}) rotate(-35)` } : { class: 'middle', x: x(i), y: y(least) + 18 };
    parts.push(svg('text', at, svg('title', {}, value), names[i]));
  });
  parts.push(svg('text', { class: 'middle', x: left + width / 2, y: height + (tilted ? 92 : 46) }, data.setting));
  const lines = series.map((each) => lineOf(each, figure, x, y));
  drawn = { lines, picture: svg('svg', { class: 'chart', role: 'group', 'aria-label': `${figure} over ${data.setting}; the table below has the figures`, width: left + width + right, height: height + (tilted ? 100 : 54) }, ...parts, ...lines) };
  holder.replaceChildren(drawn.picture, ...inBlocks(series).map(([heading, own]) => el('p', { class: 'keys' }, el('span', { class: 'bench' }, `${heading}: `), ...own.map(keyOf))));
}

// Where the axis begins: at 0, or higher if all is.
function floorOf(figure) {
  const least = Math.min(...series.flatMap(({ points }) => points.filter((point) => point && point[figure][0] !== null).map((point) => point[figure][1] ?? point[figure][0])));
  const floor = Math.floor(10 * least - 0.2) / 10;
  return floor < 0.3 ? 0 : Math.min(floor, 0.9);
}

function keyOf({ label, i }) {
  const sample = svg('svg', { width: 36, height: 12, class: 'chart', 'aria-hidden': 'true' }, svg('polyline', { class: `curve c${i % 8} d${i % 3}`, points: '1,6 35,6' }), signOf(i, [18, 6]));
  return el('span', { class: 'key' }, sample, ` ${label} `);
}

// Methods at one value are set apart a little, so that none hides another.
function lineOf({ label, i, points }, figure, x, y) {
  const aside = (i - (series.length - 1) / 2) * Math.min(5, 40 / series.length);
  const known = points.map((point, at) => [point, at]).filter(([point]) => point && point[figure][0] !== null);
  const path = known.map(([point, at]) => `${(x(at) + aside).toFixed(1)},${y(point[figure][0]).toFixed(1)}`).join(' ');
  const marks = known.map(([point, at]) => {
    const [mean, low, high] = point[figure];
    const bounds = low === null ? '' : `, ${low.toFixed(2)}–${high.toFixed(2)}`;
    const said = `${label}, ${data.setting}=${data.values[at]}: ${mean.toFixed(3)}${bounds}`;
    const bar = low === null ? null : svg('line', { class: `bound thin c${i % 8}`, x1: x(at) + aside, x2: x(at) + aside, y1: y(low), y2: y(high) });
    return svg('a', { href: data.address[at], 'aria-label': said }, svg('title', {}, said), bar, signOf(i, [x(at) + aside, y(mean)]));
  });
  return svg('g', { class: 'method' }, svg('polyline', { class: `curve c${i % 8} d${i % 3}`, points: path }), ...marks);
}

function showAt() {
  const at = Number(byId('value').value);
  const there = series.filter(({ points }) => points[at]);
  showCurves(series.map(({ label, i, bench, points }) => ({ label, bench, curve: points[at]?.curve || [[], []], recall: [points[at]?.recall[0] ?? 0], precision: [points[at] ? points[at].precision[0] : 0], alike: [drawn.lines[i]], drawings: [drawn.picture] })));
  byId('names').hidden = !there.length;
}

function draw() {
  showChart();
  showAt();
}

draw();
byId('figure').addEventListener('change', draw);
byId('value').addEventListener('change', showAt);
let room = innerWidth;
addEventListener('resize', () => {
  if (innerWidth !== room) draw();
  room = innerWidth;
});
