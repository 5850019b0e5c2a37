// Small charts: bars and lines by epoch, and estimated against true loss rates.

function barChart(values, text, chosen) {
  const known = values.filter((value) => value !== null);
  const most = Math.max(...known, 0);
  const width = Math.min(26, 250 / values.length);
  const gap = width < 6 ? 0 : 1;
  const bars = values.map((value, i) => {
    const height = value === null ? 0 : (46 * value) / (most || 1);
    const said = `epoch ${i + 1}: ${value === null ? 'not counted' : text(value)}`;
    return svg('rect', { class: chosen === i + 1 ? 'bar now' : 'bar', x: i * width + gap, y: 50 - height, width: width - 2 * gap, height: Math.max(height, 1) }, svg('title', {}, said));
  });
  const marked = known.length ? text(most) : 'not counted';
  const size = { width: values.length * width + 12 + Math.max(58, LETTER * marked.length), height: 64, class: 'chart', role: 'img' };
  const label = values.map((value, i) => `epoch ${i + 1} ${value === null ? 'not counted' : text(value)}`).join(', ');
  const right = values.length * width + 4;
  return svg('svg', { ...size, 'aria-label': label }, ...bars, svg('text', { x: right, y: 12 }, marked), svg('text', { x: 0, y: 62 }, '1'), svg('text', { x: right - 6, y: 62, class: 'end' }, `${values.length}`));
}

// Faulty links found, of all methods that the record can tell it of, after each epoch.
function overTimeChart(holder, epochs) {
  const n = data.epochs.n;
  const [left, width, height] = [34, Math.max(260, Math.min(560, (holder.clientWidth || 500) - 50)), 180];
  const x = (epoch) => left + (n > 1 ? ((epoch - 1) * width) / (n - 1) : width / 2);
  const parts = [];
  const drawn = methods.filter((method) => early.has(method.name));
  const sums = drawn.map((method) => early.get(method.name).map((own) => tally(method, own)));
  const most = Math.max(1, faulty.size, ...sums.flat().map((sum) => Math.max(sum.right, sum.wrong)));
  const y = (value) => 14 + height - (height * value) / most;
  for (const value of new Set([0, Math.round(most / 2), most])) {
    parts.push(svg('line', { class: 'grid', x1: left, x2: left + width, y1: y(value), y2: y(value) }), svg('text', { x: left - 6, y: y(value) + 4, class: 'end' }, `${value}`));
  }
  for (let epoch = 1; epoch <= n; epoch += Math.ceil(n / 12)) parts.push(svg('text', { x: x(epoch), y: height + 30, class: 'middle' }, `${epoch}`));
  if (epochs < n) parts.push(svg('line', { class: 'now', x1: x(epochs), x2: x(epochs), y1: 10, y2: 14 + height }));
  drawn.forEach((method, i) => {
    for (const kind of ['right', 'wrong']) {
      const points = sums[i].map((sum, e) => `${x(e + 1).toFixed(1)},${y(sum[kind]).toFixed(1)}`).join(' ');
      parts.push(svg('polyline', { class: `series s${i} ${kind}`, points }));
    }
  });
  const key = drawn.flatMap((method, i) => ['right', 'wrong'].map((kind) => el('span', { class: 'key' }, svg('svg', { width: 30, height: 10, class: 'chart', 'aria-hidden': 'true' }, svg('line', { class: `series s${i} ${kind}`, x1: 1, x2: 29, y1: 5, y2: 5 })), ` ${method.name}: ${WORDS[kind]}`)));
  const label = drawn.map((method, i) => `${method.name}: ${sums[i].map((sum, e) => `after ${e + 1} epochs ${sum.right} found, ${sum.wrong} wrong`).join('; ')}`).join('. ');
  holder.replaceChildren(svg('svg', { class: 'chart', role: 'img', 'aria-label': label, width: left + width + 16, height: height + 36 }, ...parts), el('p', { class: 'keys' }, ...key));
}

// Estimated against true loss rate of the links that are faulty or blamed, both logarithmic.
function scatter(holder, method, flagged, choose) {
  const judgements = judged(method, flagged);
  if (!judgements.size) {
    holder.replaceChildren(el('p', { class: 'hint' }, 'No link is faulty or blamed.'));
    return;
  }
  const [low, high] = [-4.3, 0];
  const size = Math.max(240, Math.min(380, (holder.clientWidth || 380) - 90));
  const scale = (rate) => (Math.max(low + 0.15, Math.log10(rate || 1e-9)) - low) / (high - low);
  const x = (rate) => 48 + size * scale(rate);
  const y = (rate) => 10 + size * (1 - scale(rate));
  const parts = [svg('line', { class: 'grid', x1: x(1e-4), y1: y(1e-4), x2: x(1), y2: y(1) })];
  for (const rate of [1e-4, 1e-3, 1e-2, 0.1, 1]) {
    parts.push(svg('line', { class: 'grid', x1: x(rate), x2: x(rate), y1: 10, y2: 10 + size }), svg('line', { class: 'grid', x1: 48, x2: 48 + size, y1: y(rate), y2: y(rate) }));
    parts.push(svg('text', { x: x(rate), y: size + 26, class: 'middle' }, percent(rate)), svg('text', { x: 44, y: y(rate) + 4, class: 'end' }, percent(rate)));
  }
  let without = 0;
  for (const [link, said] of judgements) {
    const worst = method.undirected && !(figure(data.links.rate, link) >= figure(data.links.rate, link ^ 1)) ? link ^ 1 : link;
    const estimate = figure(method.rate, worst);
    if (estimate === null || estimate === undefined) {
      without += 1;
      continue;
    }
    const dot = mark(said, [x(figure(data.links.rate, worst)), y(estimate)], true);
    dot.append(svg('title', {}, `${linkName(worst)}: true ${percent(figure(data.links.rate, worst))}, estimated ${percent(estimate)}`));
    dot.addEventListener('click', () => choose(worst));
    parts.push(dot);
  }
  parts.push(svg('text', { x: 48 + size / 2, y: size + 44, class: 'middle' }, 'true loss rate'), svg('text', { class: 'middle', transform: `translate(9 ${10 + size / 2}) rotate(-90)` }, 'estimated'));
  const label = `Estimated against true loss rates by ${method.name}; the table of links has the figures`;
  const note = without ? el('p', { class: 'hint' }, `${method.name} estimates no rate of ${without} links. What is below 0.01 % is drawn at the edge.`) : el('p', { class: 'hint' }, 'What is below 0.01 % is drawn at the edge.');
  holder.replaceChildren(svg('svg', { class: 'chart', role: 'img', 'aria-label': label, width: size + 84, height: size + 52 }, ...parts), note);
}
