// F1 of every seed with means and intervals, and the mean precision-recall curves.

const methods = data.methods;

function axis(x, y, title, vertical) {
  const parts = [];
  for (const value of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
    const [px, py] = vertical ? [x(0) - 6, y(value) + 4] : [x(value), y(0) + 16];
    parts.push(vertical ? svg('line', { class: 'grid', x1: x(0), x2: x(1), y1: y(value), y2: y(value) }) : svg('line', { class: 'grid', x1: x(value), x2: x(value), y1: y(0), y2: y(1) }));
    parts.push(svg('text', { x: px, y: py, class: vertical ? 'end' : 'middle' }, value.toFixed(1)));
  }
  const middle = vertical ? { class: 'middle', transform: `translate(10 ${y(0.5)}) rotate(-90)` } : { class: 'middle', x: x(0.5), y: y(0) + 34 };
  return [...parts, svg('text', middle, title)];
}

function showSeed(seed) {
  const row = byId(`seed-${seed}`);
  if (!row) return;
  for (const other of row.parentNode.rows) other.classList.toggle('chosen', other === row);
  row.scrollIntoView({ block: 'center' });
}

// The same for every drawing: seeds that would lie on one another are spread a little.
const spread = (i) => ((i * 0.618) % 1) * 16 - 8;

function showF1() {
  const holder = byId('f1');
  const left = Math.min(170, 16 + 6.4 * Math.max(...methods.map((method) => method.label.length)));
  const width = Math.max(180, Math.min(900, holder.clientWidth - left - 20));
  const bottom = 10 + 34 * methods.length;
  const x = (value) => left + width * value;
  const parts = axis(x, (value) => bottom - value * (bottom - 6), 'F1', false);
  methods.forEach((method, i) => {
    const y = 26 + 34 * i;
    parts.push(svg('text', { x: left - 10, y: y + 4, class: 'end who' }, method.label));
    method.seeds.forEach((seed, nth) => {
      const dot = svg('circle', { class: `dot c${i % 8}`, cx: x(method.f1[nth]), cy: y + spread(nth), r: 4 }, svg('title', {}, `${method.label}, seed ${seed}: F1 ${method.f1[nth].toFixed(3)}`));
      dot.addEventListener('click', () => showSeed(seed));
      parts.push(dot);
    });
    if (method.low !== null) parts.push(svg('line', { class: `bound c${i % 8}`, x1: x(method.low), x2: x(method.high), y1: y, y2: y }));
    parts.push(svg('rect', { class: `mean c${i % 8}`, x: x(method.mean) - 3, y: y - 9, width: 6, height: 18, rx: 2 }));
  });
  const label = methods.map((method) => `${method.label}: mean F1 ${method.mean.toFixed(3)}`).join(', ');
  holder.replaceChildren(svg('svg', { class: 'chart', role: 'img', 'aria-label': label, width: left + width + 16, height: bottom + 40 }, ...parts));
}

function showCurves() {
  const holder = byId('curve');
  const size = Math.max(240, Math.min(440, holder.clientWidth - 70));
  const x = (value) => 46 + size * value;
  const y = (value) => 10 + size * (1 - value);
  const parts = [...axis(x, y, 'recall', false), ...axis(x, y, 'precision', true)];
  const lines = methods.map((method, i) => {
    const points = method.curve.map((value, n) => `${x(data.recalls[n]).toFixed(1)},${y(value).toFixed(1)}`).join(' ');
    const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
    const dot = svg('circle', { class: `own c${i % 8}`, cx: x(mean(method.recall)), cy: y(mean(method.precision)), r: 5 });
    return svg('g', { class: 'method' }, svg('polyline', { class: `curve c${i % 8} d${i % 3}`, points }), dot, svg('title', {}, method.label));
  });
  const drawing = svg('svg', { class: 'chart', role: 'img', 'aria-label': 'Mean precision-recall curves; the table above has the means', width: size + 64, height: size + 50 }, ...parts, ...lines);
  holder.replaceChildren(drawing);
  byId('names').replaceChildren(...methods.map((method, i) => nameOf(method, i, drawing, lines)));
}

function nameOf(method, i, drawing, lines) {
  const sample = svg('svg', { width: 34, height: 12, class: 'chart', 'aria-hidden': 'true' }, svg('polyline', { class: `curve c${i % 8} d${i % 3}`, points: '1,6 33,6' }));
  const button = el('button', { type: 'button', class: 'link-name' }, sample, ` ${method.label}`);
  const alone = (on) => () => {
    drawing.classList.toggle('one', on);
    lines[i].classList.toggle('alone', on);
  };
  for (const event of ['pointerenter', 'focus']) button.addEventListener(event, alone(true));
  for (const event of ['pointerleave', 'blur']) button.addEventListener(event, alone(false));
  return el('li', {}, button);
}

function draw() {
  showF1();
  showCurves();
}

draw();
let room = innerWidth;
addEventListener('resize', () => {
  if (innerWidth !== room) draw();
  room = innerWidth;
});
