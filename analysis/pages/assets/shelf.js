// The list of runs: a filter, the choice of two runs, and a small drawing of each figure's first panel.

const filter = byId('filter');
const rows = byId('list') ? [...byId('list').tBodies[0].rows] : [];

// A word such as K=4 is a whole setting; any other may be anywhere in the row.
function has(row, word) {
  if (word.includes('=')) return ` ${row.dataset.words.toLowerCase()} `.includes(` ${word} `);
  return `${row.textContent} ${row.dataset.words}`.toLowerCase().includes(word);
}

function showMatching() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows) row.hidden = !words.every((word) => has(row, word));
  byId('shown').textContent = words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : '';
}

function offerDifference() {
  const two = [...document.querySelectorAll('[data-run]:checked')].map((box) => decodeURIComponent(box.dataset.run.slice(0, -1)));
  byId('two').hidden = two.length !== 2;
  if (two.length === 2) byId('difference').href = `/difference?${new URLSearchParams({ of: two[0], and: two[1] })}`;
}

if (filter) {
  filter.addEventListener('input', showMatching);
  showMatching(); // a browser keeps what was written in it
  for (const box of document.querySelectorAll('[data-run]')) box.addEventListener('change', offerDifference);
  offerDifference();
}

for (const holder of document.querySelectorAll('[data-figure]')) {
  const figure = data.figures[Number(holder.dataset.figure)];
  if (figure) drawPanel(holder, figure.panel, figure.names, Math.max(160, Math.min(300, holder.clientWidth - 56)), 130, true);
}
