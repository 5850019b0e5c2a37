// A small drawing of each figure's first panel.

for (const holder of document.querySelectorAll('[data-figure]')) {
  const figure = data.figures[Number(holder.dataset.figure)];
  if (figure) drawPanel(holder, figure.panel, figure.names, Math.max(160, Math.min(300, holder.clientWidth - 56)), 130, true);
}
