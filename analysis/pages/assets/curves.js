// Axes from 0 to 1, and mean precision-recall curves with the names of their methods.

const SIGNS = ['M-4 0A4 4 0 1 0 4 0A4 4 0 1 0 -4 0', 'M-4 -4H4V4H-4Z', 'M0 -5L5 4H-5Z', 'M0 -5.5L5.5 0L0 5.5L-5.5 0Z', 'M0 5L5 -4H-5Z'];

function signOf(i, at) {
  return svg('path', { class: `own c${i % 8}`, d: SIGNS[i % SIGNS.length], transform: `translate(${at.map((v) => v.toFixed(1)).join(' ')})` });
}

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
    const dot = own === null ? null : signOf(i, [x(meanOf(method.recall)), y(own)]);
    return svg('g', { class: 'method' }, svg('polyline', { class: `curve c${i % 8} d${i % 3}`, points }), dot, svg('title', {}, method.label));
  });
  const drawing = svg('svg', { class: 'chart', role: 'img', 'aria-label': 'Mean precision-recall curves; the table above has the means', width: size + 64, height: size + 50 }, ...parts, ...lines);
  holder.replaceChildren(drawing);
  const names = inBlocks(methods).flatMap(([heading, own]) => [el('li', { class: 'bench' }, heading), ...own.map((method) => nameOf(method, methods.indexOf(method), drawing, lines))]);
  byId('names').replaceChildren(...names);
}

function nameOf(method, i, drawing, lines) {
  const sample = svg('svg', { width: 34, height: 12, class: 'chart', 'aria-hidden': 'true' }, svg('polyline', { class: `curve c${i % 8} d${i % 3}`, points: '1,6 33,6' }), signOf(i, [17, 6]));
  const button = el('button', { type: 'button', class: 'link-name' }, sample, ' ', ...breakable(method.label));
  const alone = (on) => () => {
    drawing.classList.toggle('one', on);
    for (const line of [lines[i], ...(method.alike || [])]) line.classList.toggle('alone', on);
    for (const other of method.drawings || []) other.classList.toggle('one', on);
  };
  for (const event of ['pointerenter', 'focus']) button.addEventListener(event, alone(true));
  for (const event of ['pointerleave', 'blur']) button.addEventListener(event, alone(false));
  return el('li', {}, button);
}
