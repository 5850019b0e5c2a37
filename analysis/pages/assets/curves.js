// Axes from 0 to 1, and mean precision-recall curves with the names of their methods.

// The mean of what is defined; null if nothing is.
function meanOf(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

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

// methods: label, curve (recalls and precisions), and its own verdict's mean recall and precision.
function showCurves(methods) {
  const holder = byId('curve');
  const size = Math.max(240, Math.min(440, holder.clientWidth - 70));
  const x = (value) => 46 + size * value;
  const y = (value) => 10 + size * (1 - value);
  const parts = [...axis(x, y, 'recall', false), ...axis(x, y, 'precision', true)];
  const lines = methods.map((method, i) => {
    const [recall, precision] = method.curve;
    const points = recall.map((value, n) => `${x(value).toFixed(1)},${y(precision[n]).toFixed(1)}`).join(' ');
    const own = meanOf(method.precision); // null if it blamed nothing
    const dot = own === null || meanOf(method.recall) === null ? null : signOf(i, [x(meanOf(method.recall)), y(own)]);
    return svg('g', { class: 'method' }, svg('polyline', { class: lineOf(i), points }), dot, svg('title', {}, method.label));
  });
  const drawing = svg('svg', { class: 'chart', role: 'img', 'aria-label': 'Mean precision-recall curves; the table above has the means', width: size + 64, height: size + 50 }, ...parts, ...lines);
  holder.replaceChildren(drawing);
  const names = inBlocks(methods).flatMap(([heading, own]) => [el('li', { class: 'bench' }, heading), ...own.map((method) => nameOf(method, methods.indexOf(method), drawing, lines))]);
  byId('names').replaceChildren(...names);
}

function nameOf(method, i, drawing, lines) {
  return nameButton(i, method.label, (on) => {
    drawing.classList.toggle('one', on);
    for (const line of [lines[i], ...(method.alike || [])]) line.classList.toggle('alone', on);
    for (const other of method.drawings || []) other.classList.toggle('one', on);
  });
}
