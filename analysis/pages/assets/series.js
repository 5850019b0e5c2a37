// How series look: the line and the mark of the n-th, and its name, which shows it alone.

const SIGNS = ['M-4 0A4 4 0 1 0 4 0A4 4 0 1 0 -4 0', 'M-4 -4H4V4H-4Z', 'M0 -5L5 4H-5Z', 'M0 -5.5L5.5 0L0 5.5L-5.5 0Z', 'M0 5L5 -4H-5Z'];

function signOf(i, at) {
  return svg('path', { class: `own c${i % 8}`, d: SIGNS[i % SIGNS.length], transform: `translate(${at.map((v) => v.toFixed(1)).join(' ')})` });
}

const lineOf = (i) => `curve c${i % 8} d${i % 3}`;

function sampleOf(i) {
  return svg('svg', { width: 34, height: 12, class: 'chart', 'aria-hidden': 'true' }, svg('polyline', { class: lineOf(i), points: '1,6 33,6' }), signOf(i, [17, 6]));
}

// alone(true) while the name is pointed at or has the focus.
function nameButton(i, name, alone) {
  const button = el('button', { type: 'button', class: 'link-name' }, sampleOf(i), ' ', ...breakable(name));
  for (const event of ['pointerenter', 'focus']) button.addEventListener(event, () => alone(true));
  for (const event of ['pointerleave', 'blur']) button.addEventListener(event, () => alone(false));
  return el('li', {}, button);
}
