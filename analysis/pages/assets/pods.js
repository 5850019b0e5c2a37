// A fabric of many links as matrices: a card for each pod, in it a matrix for each tier and direction.
// A row of a matrix is a switch, a cell one of its directed links; a card opens as a drawing.

// Pixels: of a cell, between the two matrices of a tier, of a matrix's heading, of a card beside and
// above its matrices, and how high all cards may be for larger cells.
const [LEAST_CELL, MOST_CELL, MATRIX_GAP, MATRIX_HEAD, CARD_WIDTH, CARD_HEIGHT, WINDOW] = [3, 20, 10, 14, 22, 90, 640];
const LEAST_MATRIX = 48; // there is room for its heading
const SMALL_MATRIX = 72; // two cards stand side by side on a telephone

class Matrix {
  constructor(holder, open) {
    this.cards = new Map();
    this.place = new Map(); // of each link the card, and its cell's left and top
    const byPod = groupBy(fabric.lower.map((_, edge) => edge), (edge) => podOf(2 * edge));
    const all = [...byPod].sort((a, b) => (a[0] < 0) - (b[0] < 0) || a[0] - b[0]);
    const tables = new Map(all.map(([pod, edges]) => [pod, this.tables(edges)]));
    const widest = Math.max(...[...tables.values()].flat(2).map((row) => row.length));
    const tallest = Math.max(...[...tables.values()].map((own) => own.reduce((sum, rows) => sum + rows.length, 0)));
    this.cell = this.cellSize(holder.clientWidth || 800, all.length, widest, tallest);
    this.width = Math.max(LEAST_MATRIX, widest * this.cell);
    this.root = el('div', { class: 'podgrid', role: 'group', 'aria-label': `${all.length} pods, ${nLinks} directed links`, style: `--pod: ${2 * this.width + MATRIX_GAP + CARD_WIDTH}px` });
    for (const [pod] of all) this.root.append(this.card(pod, tables.get(pod), open));
    holder.replaceChildren(this.root);
  }

  // The largest cells with which all cards are a window high; small ones if there are none.
  cellSize(room, cards, widest, tallest) {
    const small = Math.max(LEAST_CELL, Math.min(12, Math.floor(SMALL_MATRIX / widest)));
    for (let cell = MOST_CELL; cell > small; cell -= 1) {
      const abreast = Math.floor(room / (2 * Math.max(LEAST_MATRIX, widest * cell) + MATRIX_GAP + CARD_WIDTH + 8));
      if (abreast && Math.ceil(cards / abreast) * (tallest * cell + CARD_HEIGHT + 36) <= WINDOW) return cell;
    }
    return small;
  }

  // The edges of a pod by tier, and by their lower switch: [[[edge, ...], ...], ...].
  tables(edges) {
    const tiers = [...groupBy(edges, (edge) => tierOf(2 * edge))].sort((a, b) => a[0] - b[0]);
    return tiers.map(([, own]) => [...groupBy(own, (edge) => fabric.lower[edge]).values()]);
  }

  card(pod, tables, open) {
    const layer = (name) => svg('g', { class: name });
    const own = { pod, links: 0, layers: { healthy: layer('healthy'), faulty: layer('faulty'), marks: layer('marks'), chosen: layer('chosen') }, matrices: [] };
    this.cards.set(pod, own);
    let y = 0;
    for (const rows of tables) {
      [0, 1].forEach((down) => this.matrix(own, rows, down, down * (this.width + MATRIX_GAP), y + MATRIX_HEAD));
      y += MATRIX_HEAD + rows.length * this.cell + 4;
    }
    const name = podName(pod);
    own.summary = el('span', { class: 'figures' });
    own.facts = el('small', {});
    own.button = el('button', { type: 'button', class: 'openpod', title: `draw ${name}` }, name);
    own.svg = svg('svg', { class: 'cells', width: 2 * this.width + MATRIX_GAP, height: y, 'aria-hidden': 'true' }, ...own.matrices.map((each) => each.head), ...Object.values(own.layers));
    own.root = el('div', { class: 'pod', 'data-pod': pod }, own.button, own.facts, own.svg, own.summary);
    own.root.addEventListener('click', (event) => {
      if (event.pointerType === 'touch' || this.nearest(event, () => true) === null) open(pod);
    });
    return own.root;
  }

  matrix(card, rows, down, x, y) {
    const links = rows.map((edges) => edges.map((edge) => 2 * edge + down));
    const [from, to] = ends(links[0][0]).map((s) => tierName(fabric.tier[s]));
    const tier = tierOf(links[0][0]);
    card.matrices.push({ x, y, links, tier, head: svg('text', { x, y: y - 4 }, short(`${from}→${to}`, 11)) });
    links.forEach((row, i) => row.forEach((link, j) => this.place.set(link, [card, x + j * this.cell, y + i * this.cell])));
  }

  has(link) {
    return this.place.has(link);
  }

  sorted(links) {
    return links.sort((a, b) => a - b);
  }

  square(link) {
    const [, x, y] = this.place.get(link);
    const size = this.cell - 1;
    return `M${x} ${y}h${size}v${size}h${-size}z`;
  }

  shape(said, link) {
    const [, x, y] = this.place.get(link);
    const half = (this.cell - 1) / 2;
    const [cx, cy, r] = [x + half, y + half, half * 0.55];
    return {
      right: `M${cx - r} ${cy}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
      missed: `M${x} ${y}h${2 * half}v${2 * half}h${-2 * half}z`,
      unseen: `M${cx} ${cy - half}l${half} ${half}l${-half} ${half}l${-half} ${-half}z`,
      wrong: `M${x} ${y}l${2 * half} ${2 * half}m0 ${-2 * half}l${-2 * half} ${2 * half}`,
    }[said];
  }

  judge(method, flagged, shown) {
    const said = [...judged(method, flagged)].filter(([link]) => shown(link));
    const marks = groupBy(said, ([link]) => podOf(link));
    const broken = groupBy([...faulty].filter(shown), podOf);
    for (const card of this.cards.values()) {
      const here = card.matrices.filter((each) => shown(each.links[0][0]));
      const rows = here.flatMap(({ x, y, links }) => links.map((row, i) => `M${x} ${y + (i + 0.5) * this.cell - 0.5}h${row.length * this.cell - 1}`));
      card.links = here.reduce((sum, { links }) => sum + links.reduce((n, row) => n + row.length, 0), 0);
      card.layers.healthy.replaceChildren(svg('path', { d: rows.join(''), 'stroke-width': this.cell - 1, 'stroke-dasharray': `${this.cell - 1} 1` }));
      const own = broken.get(card.pod) || [];
      const colours = groupBy(own, (link) => rangeOf(figure(data.links.rate, link)));
      card.layers.faulty.replaceChildren(...[...colours].map(([range, links]) => svg('path', { class: `r${range}`, d: links.map((link) => this.square(link)).join('') })));
      const kinds = groupBy(marks.get(card.pod) || [], ([, kind]) => kind);
      const cells = (links) => (method.undirected ? links.flatMap((link) => [link, link ^ 1]) : links);
      card.layers.marks.replaceChildren(...[...kinds].map(([kind, links]) => svg('path', { class: kind, 'data-links': links.map(([link]) => link).join(' '), d: cells(links.map(([link]) => link)).map((link) => this.shape(kind, link)).join('') })));
      this.sumUp(card, own.length, kinds);
    }
  }

  sumUp(card, broken, kinds) {
    const sums = ['right', 'missed', 'unseen', 'wrong'].map((kind) => [kind, (kinds.get(kind) || []).length]);
    card.root.dataset.links = card.links;
    card.facts.textContent = `${count(card.links)} links, ${broken} faulty`;
    card.summary.replaceChildren(...sums.map(([kind, n]) => el('span', { class: n ? 'figure' : 'figure none', title: WORDS[kind] }, legendMark(kind), ` ${count(n)}`)));
    card.button.setAttribute('aria-label', `${podName(card.pod)}: ${card.facts.textContent}; ${sums.map(([kind, n]) => `${n} ${WORDS[kind]}`).join(', ')}`);
  }

  choose(link) {
    for (const card of this.cards.values()) card.layers.chosen.replaceChildren();
    if (link === null || !this.has(link)) return;
    const [card, x, y] = this.place.get(link);
    card.layers.chosen.append(svg('rect', { x: x - 2, y: y - 2, width: this.cell + 3, height: this.cell + 3 }));
  }

  nearest(event, shown) {
    const drawn = event.target.closest('svg.cells');
    if (!drawn) return null;
    const card = this.cards.get(Number(drawn.parentElement.dataset.pod));
    const box = drawn.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    for (const { x, y, links } of card.matrices) {
      const link = links[Math.floor((py - y) / this.cell)]?.[Math.floor((px - x) / this.cell)];
      if (link !== undefined) return shown(link) ? link : null;
    }
    return null;
  }
}
