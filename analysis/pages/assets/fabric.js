// The fabric as it was recorded, and its drawing.

const fabric = data.fabric;
const nLinks = 2 * fabric.lower.length;
const monitors = new Set(fabric.monitors);
const topTier = Math.max(...fabric.tier);
const faulty = new Set(data.links.faulty);
const listed = data.links.id.length ? new Map(data.links.id.map((link, row) => [link, row])) : null;

const ends = (link) => {
  const edge = link >> 1;
  return link % 2 ? [fabric.upper[edge], fabric.lower[edge]] : [fabric.lower[edge], fabric.upper[edge]];
};
const rowOf = (link) => (listed ? listed.get(link) : link);
const figure = (column, link) => {
  const row = rowOf(link);
  return row === undefined ? undefined : column[row];
};

// As the record names links: a second one between the same switches has #2.
const parallel = new Map();
const nth = fabric.lower.map((lower, edge) => {
  const key = lower * fabric.names.length + fabric.upper[edge];
  parallel.set(key, (parallel.get(key) || 0) + 1);
  return parallel.get(key);
});
function linkName(link) {
  const [from, to] = ends(link);
  const number = nth[link >> 1];
  return `${fabric.names[from]}->${fabric.names[to]}${number > 1 ? `#${number}` : ''}`;
}

const tierName = (tier) => {
  const found = fabric.names[fabric.tier.indexOf(tier)];
  return /^[A-Za-z]+(?=[\d_]*$)/.exec(found)?.[0] || `tier ${tier}`;
};
const podName = (pod) => {
  const own = fabric.names.filter((_, s) => fabric.pod[s] === pod);
  return own.length === 1 ? own[0] : `pod ${pod}`;
};
// A link belongs to the pod and the tiers of its lower end.
const podOf = (link) => fabric.pod[fabric.lower[link >> 1]];
const tierOf = (link) => fabric.tier[fabric.lower[link >> 1]];

function rangeOf(rate) {
  const at = data.ranges.findIndex(([low]) => rate >= low);
  return at < 0 ? data.ranges.length - 1 : at;
}

// ---- verdicts ----------------------------------------------------------------------------------

// A method as the record has it, with sets of links; those that it did not observe, and of each
// blamed link the others that nothing tells from it.
const withSets = (method) => ({
  ...method,
  flagged: new Set(method.flagged),
  unobserved: new Set(method.unobserved || []),
  alike: new Map((method.ties || []).flatMap((tie) => tie.map((link) => [link, tie.filter((other) => other !== link)]))),
});
const early = new Map(data.overTime.map(({ name, flagged }) => [name, flagged.map((own) => new Set(own))]));
const none = { name: '(no method)', bench: '', undirected: false, flagged: [], unobserved: [], ties: [], rate: [] };
const methods = (data.methods.length ? data.methods : [none]).map((method) => withSets(method));

// What a method blames after so many epochs; all of them if it is not known for fewer.
function blamed(method, epochs) {
  const known = early.get(method.name);
  return known && epochs < data.epochs.n ? known[epochs - 1] : method.flagged;
}

function status(method, flagged, link) {
  const either = (set) => set.has(link) || (method.undirected && set.has(link ^ 1));
  if (either(flagged)) return either(faulty) ? 'right' : 'wrong';
  const seen = !method.unobserved.has(link) || (method.undirected && !method.unobserved.has(link ^ 1));
  return either(faulty) ? (seen ? 'missed' : 'unseen') : '';
}

// The verdict on a link that is not blamed is no word on its health where nothing observed it.
const verdictOn = (method, said, link) => said || (method.unobserved.has(link) ? 'unseen' : '');

// The links that a verdict is about: the faulty and the blamed ones; of undirected ones either one.
function judged(method, flagged) {
  const found = new Map();
  for (const link of [...faulty, ...flagged]) {
    const own = method.undirected ? link & ~1 : link;
    if (!found.has(own)) found.set(own, status(method, flagged, own));
  }
  return found;
}

function tally(method, flagged) {
  const sums = { right: 0, wrong: 0, missed: 0, unseen: 0 };
  for (const said of judged(method, flagged).values()) sums[said] += 1;
  return sums;
}

const SHAPES = {
  right: 'M-6 0A6 6 0 1 0 6 0A6 6 0 1 0 -6 0M-3 0L-1 2.5L3 -2.5',
  wrong: 'M-5 -5L5 5M5 -5L-5 5',
  missed: 'M-5.5 -5.5H5.5V5.5H-5.5Z',
  unseen: 'M0 -7L7 0L0 7L-7 0Z',
};

function mark(kind, [x, y], small) {
  const size = small ? ' scale(0.7)' : '';
  const place_ = `translate(${x.toFixed(1)} ${y.toFixed(1)})${size}`;
  return svg('g', { class: `mark ${kind}`, transform: place_ }, svg('path', { d: SHAPES[kind] }));
}

// ---- the drawing -------------------------------------------------------------------------------

class Drawing {
  constructor(holder, links, switches) {
    this.holder = holder;
    this.links = links;
    this.plan = place(switches, holder.clientWidth || 800);
    this.many = links.length > 300;
    this.curves = new Map(links.map((link) => [link, this.curve(link)]));
    const layer = (name) => svg('g', { class: name });
    this.layers = { pods: layer('pods'), halos: layer('halos'), chosen: layer('chosen'), links: layer('links'), switches: layer('switches'), marks: layer('marks') };
    const { width, height } = this.plan;
    this.svg = svg('svg', { width, height, class: this.many ? 'fabric many' : 'fabric', tabindex: 0, role: 'application', 'aria-describedby': 'keys panel', 'aria-label': `${switches.length} switches and ${links.length} directed links` }, ...Object.values(this.layers));
    this.root = this.svg;
    this.paths = new Map();
    this.drawPods();
    this.drawLinks();
    this.drawSwitches(switches);
    holder.replaceChildren(this.svg);
  }

  curve(link) {
    const [from, to] = ends(link).map((s) => this.plan.spot.get(s));
    return curve(from, to);
  }

  has(link) {
    return this.curves.has(link);
  }

  // From left to right.
  sorted(links) {
    const x = (link) => along(this.curves.get(link), 0.5)[0];
    return links.sort((a, b) => x(a) - x(b));
  }

  drawPods() {
    const { boxes, tiers, turned } = this.plan;
    for (const { pod, x, y, width, height, cx, cy } of boxes) {
      this.layers.pods.append(svg('rect', { x, y, width, height, rx: 8 }));
      if (width > 30) this.layers.pods.append(svg('text', { x: cx, y: cy }, podName(pod)));
    }
    for (const [tier, depth] of tiers.entries()) {
      const at = turned ? { x: depth, y: 12, class: 'tier turned' } : { x: 4, y: depth + 4, class: 'tier' };
      this.layers.pods.append(svg('text', at, tierName(tier)));
    }
  }

  drawLinks() {
    for (const link of this.links) {
      const path = svg('path', { 'data-link': link });
      this.paths.set(link, path);
      this.drawLink(link);
    }
  }

  // As it is now: its colour, and where it leads. Healthy ones among many have no arrow heads.
  drawLink(link) {
    const broken = faulty.has(link);
    const [c, path] = [this.curves.get(link), this.paths.get(link)];
    const head = broken ? headOf(c, 0.4, 10) : this.many ? '' : headOf(c, 0.4, 6);
    fill(path, { class: broken ? `link faulty r${rangeOf(figure(data.links.rate, link))}` : 'link healthy', d: pathOf(c) + head }, []);
    if (broken) this.layers.links.append(path);
    else this.layers.links.prepend(path); // the broken ones lie on top
  }

  drawSwitches(switches) {
    const { spot, slotOf, turned } = this.plan;
    for (const s of switches) {
      const [x, y] = spot.get(s);
      const [across, size] = [12, Math.min(12, Math.max(4, slotOf[fabric.tier[s]] - 2))];
      const [width, height] = turned ? [across, size] : [size, across];
      this.layers.switches.append(svg('rect', { x: x - width / 2, y: y - height / 2, width, height, rx: 2, class: monitors.has(s) ? 'monitor' : '' }, svg('title', {}, monitors.has(s) ? `${fabric.names[s]}: hosts meters` : fabric.names[s])));
      const at = this.nameAt(x, y, fabric.tier[s]);
      if (at) this.layers.switches.append(svg('text', at, shortName(s)));
    }
  }

  // Beyond its switch as seen from the others; the names of inner tiers stand upwards.
  nameAt(x, y, tier) {
    const out = tier === 0 ? 1 : -1;
    return {
      level: { x, y: y + (tier === 0 ? 18 : -10) },
      upright: { class: tier === 0 ? 'end' : 'start', transform: `translate(${(x + 4).toFixed(1)} ${y + 10 * out}) rotate(-90)` },
      beside: { class: tier === 0 ? 'start' : 'end', x: x + 10 * out, y: y + 4 },
    }[this.plan.names[tier].stand];
  }

  // Halos and marks of a verdict; links that are not shown fade.
  judge(method, flagged, shown) {
    const halos = [];
    const marks = [];
    for (const [link, path] of this.paths) path.classList.toggle('dim', !shown(link));
    for (const [link, said] of judged(method, flagged)) {
      if (!this.curves.has(link) || !(shown(link) || (method.undirected && shown(link ^ 1)))) continue;
      const own = method.undirected ? [link, link ^ 1] : [link];
      for (const each of own) halos.push(svg('path', { class: `halo ${said}`, d: pathOf(this.curves.get(each)) }));
      const [a, b] = own.map((each) => along(this.curves.get(each), method.undirected ? 0.5 : 0.62));
      const middle = b ? [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2] : a;
      marks.push(mark(said, middle, this.plan.slot < 20));
    }
    this.layers.halos.replaceChildren(...halos);
    this.layers.marks.replaceChildren(...marks);
  }

  choose(link) {
    if (link === null || !this.curves.has(link)) {
      this.layers.chosen.replaceChildren();
      return;
    }
    const c = this.curves.get(link);
    const [tip, before] = [along(c, 0.88), along(c, 0.8)];
    const turn = (Math.atan2(tip[1] - before[1], tip[0] - before[0]) * 180) / Math.PI;
    const arrow = svg('path', { class: 'arrow', d: 'M-12 -10L8 0L-12 10Z', transform: `translate(${tip[0].toFixed(1)} ${tip[1].toFixed(1)}) rotate(${turn.toFixed(1)})` });
    this.layers.chosen.replaceChildren(svg('path', { class: 'line', d: pathOf(c) }), arrow);
  }

  nearest(event, shown, reach) {
    const box = this.svg.getBoundingClientRect();
    const point = [event.clientX - box.left, event.clientY - box.top];
    let best = null;
    let least = reach;
    for (const [link, c] of this.curves) {
      const d = shown(link) ? distance(c, point) - (faulty.has(link) ? 1 : 0) : Infinity;
      if (d < least) [best, least] = [link, d];
    }
    return best;
  }
}
