// Figures over the values of a setting, and the curves at one of them.

const series = data.labels.map((label, i) => ({ label, i, bench: data.benches[i], points: data.points.map((own) => own[i]) }));
const asNumbers = data.values.map(Number);
const numeric = asNumbers.every((value) => Number.isFinite(value));
const logarithmic = numeric && Math.min(...asNumbers) > 0 && Math.max(...asNumbers) / Math.min(...asNumbers) >= 20;

function showChart() {
  const [holder, figure] = [byId('chart'), byId('figure').value];
  const what = byId('figure').selectedOptions[0].textContent;
  byId('what').textContent = what;
  const points = data.values.flatMap((value, at) => series.filter(({ points: own }) => own[at] && own[at][figure][0] !== null).map(({ i, points: own }) => {
    const [mean, low, high] = own[at][figure];
    return { series: i, x: value, draws: data.runs[at], mean, low, high };
  }));
  const links = Object.fromEntries(data.values.map((value, at) => [value, data.address[at]]));
  holder.replaceChildren();
  drawPanel(holder, { points, links, printed: [], numeric, logX: logarithmic, logY: false, limits: [floorOf(points), 1], x: data.setting, y: what }, data.labels, Math.max(200, Math.min(860, holder.clientWidth - 80)), 300, false);
  holder.append(...inBlocks(series).map(([heading, own]) => el('p', { class: 'keys' }, el('span', { class: 'bench' }, `${heading}: `), ...own.map(({ label, i }) => el('span', { class: 'key' }, sampleOf(i), ` ${label} `)))));
}

// Where the axis begins: at 0, or higher if all is.
function floorOf(points) {
  const floor = Math.floor(10 * Math.min(...points.map(({ mean, low }) => low ?? mean)) - 0.2) / 10;
  return floor < 0.3 ? 0 : Math.min(floor, 0.9);
}

function showAt() {
  const at = Number(byId('value').value);
  const there = series.filter(({ points }) => points[at]);
  showCurves(series.map(({ label, i, bench, points }) => ({ label, bench, curve: points[at]?.curve || [[], []], recall: [points[at]?.recall[0] ?? 0], precision: [points[at] ? points[at].precision[0] : 0], alike: byId('chart').querySelectorAll(`[data-series="${i}"]`), drawings: [byId('chart')] })));
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
