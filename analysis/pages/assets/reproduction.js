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
  return nameButton(series, name, (on) => {
    byId('panels').classList.toggle('one', on);
    for (const part of byId('panels').querySelectorAll(`[data-series="${series}"]`)) part.classList.toggle('alone', on);
  });
}

draw();
byId('names').replaceChildren(...data.names.map(nameOf));
let room = innerWidth;
addEventListener('resize', () => {
  if (innerWidth !== room) draw();
  room = innerWidth;
});
