// F1 of every seed with means and intervals, and the mean precision-recall curves.

const methods = data.methods;

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
  const names = methods.map((method) => short(method.label, 24));
  const left = 16 + 6.8 * Math.max(...names.map((name) => name.length));
  const width = Math.max(180, Math.min(900, holder.clientWidth - left - 20));
  const blocks = inBlocks(methods);
  const tops = new Map(); // where the name of a block stands, and of each method
  let bottom = 10;
  for (const [heading, own] of blocks) {
    tops.set(heading, bottom + 12);
    bottom += 20;
    for (const method of own) {
      tops.set(method, bottom + 16);
      bottom += 34;
    }
  }
  const x = (value) => left + width * value;
  const parts = axis(x, (value) => bottom - value * (bottom - 6), 'F1', false);
  for (const [heading] of blocks) {
    if (heading !== blocks[0][0]) parts.push(svg('line', { class: 'grid', x1: 0, x2: x(1), y1: tops.get(heading) - 14, y2: tops.get(heading) - 14 }));
    parts.push(svg('text', { x: 2, y: tops.get(heading) + 2, class: 'bench' }, heading));
  }
  methods.forEach((method, i) => {
    const y = tops.get(method);
    parts.push(svg('text', { x: left - 10, y: y + 4, class: 'end who' }, svg('title', {}, method.label), names[i]));
    method.seeds.forEach((seed, nth) => {
      if (method.f1[nth] === null) return;
      const dot = svg('circle', { class: `dot c${i % 8}`, cx: x(method.f1[nth]), cy: y + spread(nth), r: 4 }, svg('title', {}, `${method.label}, seed ${seed}: F1 ${method.f1[nth].toFixed(3)}`));
      dot.addEventListener('click', () => showSeed(seed));
      parts.push(dot);
    });
    if (method.low !== null) parts.push(svg('line', { class: `bound c${i % 8}`, x1: x(method.low), x2: x(method.high), y1: y, y2: y }));
    if (method.mean !== null) parts.push(svg('rect', { class: `mean c${i % 8}`, x: x(method.mean) - 3, y: y - 9, width: 6, height: 18, rx: 2 }));
  });
  const label = methods.map((method) => `${method.label}: mean F1 ${method.mean === null ? 'undefined' : method.mean.toFixed(3)}`).join(', ');
  holder.replaceChildren(svg('svg', { class: 'chart', role: 'img', 'aria-label': label, width: left + width + 16, height: bottom + 40 }, ...parts));
}

function draw() {
  showF1();
  showCurves(methods);
}

draw();
let room = innerWidth;
addEventListener('resize', () => {
  if (innerWidth !== room) draw();
  room = innerWidth;
});
