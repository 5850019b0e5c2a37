// The panels of one figure, and the names of their series.

function draw() {
  const holder = byId('panels');
  const room = holder.clientWidth || 800;
  const abreast = data.panels.length > 1 && room > 900 ? 2 : 1;
  const width = Math.max(200, Math.min(abreast > 1 ? 480 : 760, room / abreast - 100));
  holder.replaceChildren();
  for (const panel of data.panels) {
    const figure = el('figure', { class: 'panel' });
    holder.append(figure);
    drawPanel(figure, panel, data.names, width, 270, false);
  }
}

function nameOf(name, series) {
  const sample = svg('svg', { width: 34, height: 12, class: 'chart', 'aria-hidden': 'true' }, svg('polyline', { class: `curve c${series % 8} d${Math.floor(series / 8) % 3}`, points: '1,6 33,6' }), svg('path', { class: `own c${series % 8}`, d: SIGNS[series % SIGNS.length], transform: 'translate(17 6)' }));
  const button = el('button', { type: 'button', class: 'link-name' }, sample, ` ${name}`);
  const alone = (on) => () => {
    byId('panels').classList.toggle('one', on);
    for (const part of byId('panels').querySelectorAll(`[data-series="${series}"]`)) part.classList.toggle('alone', on);
  };
  for (const event of ['pointerenter', 'focus']) button.addEventListener(event, alone(true));
  for (const event of ['pointerleave', 'blur']) button.addEventListener(event, alone(false));
  return el('li', {}, button);
}

draw();
byId('names').replaceChildren(...data.names.map(nameOf));
let room = innerWidth;
addEventListener('resize', () => {
  if (innerWidth !== room) draw();
  room = innerWidth;
});
