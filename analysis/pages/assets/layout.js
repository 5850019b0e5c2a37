// Where switches and links are drawn: tiers from top to bottom, pods side by side. On a telephone
// the drawing is turned, tiers from left to right and pods from top to bottom: there is room for names.

const NARROW = 560; // pixels, as all here: a drawing with less room than this is turned
const DENSE = [[40, 13], [160, 12], [Infinity, 4]]; // the least room of a switch among so many in a row
const LETTER = 7; // the room of a letter

function groupBy(items, key) {
  const groups = new Map();
  for (const item of items) {
    const k = key(item);
    if (!groups.has(k)) groups.set(k, []);
    groups.get(k).push(item);
  }
  return groups;
}

const leastSlot = (slots) => DENSE.find(([most]) => slots <= most)[1];

const shortName = (s) => short(data.fabric.names[s], 12);

// How the names of a tier stand where each switch has so much room, and how far they reach from it.
function namesOf(own, slot, turned) {
  const longest = LETTER * Math.max(1, ...own.map((s) => shortName(s).length));
  if (slot < 11) return { stand: 'none', reach: 0 };
  if (turned) return { stand: 'beside', reach: longest };
  return slot < longest ? { stand: 'upright', reach: longest } : { stand: 'level', reach: 14 };
}

// Return the spot [x, y] of each of the switches given, how their names stand, how deep each tier
// lies, the boxes of the pods with the spots of their names, and the size of the drawing.
function place(switches, width) {
  const { tier, pod } = data.fabric;
  const turned = width < NARROW;
  const top = Math.max(...tier);
  const groups = [...groupBy(switches.filter((s) => tier[s] < top), (s) => pod[s])].sort((a, b) => (a[0] < 0) - (b[0] < 0) || a[0] - b[0]);
  const upper = switches.filter((s) => tier[s] === top);
  const rows = groups.map(([, own]) => [...groupBy(own, (s) => tier[s]).values()]);
  const needed = rows.map((tiers) => Math.max(...tiers.map((own) => own.length)));
  const boxed = groups.some(([, own]) => own.length > 1);
  const gap = boxed ? (turned ? 2 : 0.7) : 0;
  const slots = needed.reduce((sum, n) => sum + n + gap, 0);
  const begin = turned ? 20 : 56; // there stand the names of the tiers
  const room = turned ? 560 : width - begin - 12;
  const slot = Math.max(leastSlot(slots), Math.min(turned ? 24 : 120, room / Math.max(slots, 1)));
  const dense = upper.length > 160 ? 1 : leastSlot(upper.length); // so many cores are drawn as a bar
  const inner = Math.max(slots * slot, upper.length * dense, Math.min(room, turned ? 160 : 480));
  const slotOf = Array(top + 1).fill(slot); // the room of a switch, by tier
  slotOf[top] = inner / Math.max(upper.length, 1);
  for (let t = 0; t < top; t += 1) slotOf[t] = Math.min(...rows.flatMap((tiers, i) => tiers.filter((own) => tier[own[0]] === t).map((own) => (needed[i] * slot) / own.length)));
  const names = slotOf.map((own, t) => namesOf(switches.filter((s) => tier[s] === t), own, turned));
  const deep = depths(top, names, turned ? width : inner, turned);
  const put = (along, depth) => (turned ? [depth, along] : [along, depth]);
  const spot = new Map();
  const boxes = [];
  let at = begin + (inner - slots * slot) / 2;
  groups.forEach(([number], i) => {
    const wide = needed[i] * slot;
    for (const own of rows[i]) {
      own.forEach((s, nth) => spot.set(s, put(at + (gap * slot) / 2 + (wide * (nth + 0.5)) / own.length, deep.tiers[tier[s]])));
    }
    if (boxed && number >= 0) {
      const [x, y] = put(at + 1, deep.boxes);
      const [w, h] = put(wide + gap * slot - 2, deep.all - deep.boxes - 2);
      const [cx, cy] = turned ? [x + w - 22, y + 11] : [x + w / 2, y + h - 5];
      boxes.push({ pod: number, x, y, width: w, height: h, cx, cy });
    }
    at += wide + gap * slot;
  });
  upper.forEach((s, nth) => spot.set(s, put(begin + (inner * (nth + 0.5)) / upper.length, deep.tiers[top])));
  const [full, high] = put(begin + inner + 12, deep.all);
  return { spot, names, slot, slotOf, boxes, turned, tiers: deep.tiers, width: full, height: high };
}

// Return how deep each tier lies, where the boxes of pods begin, and how deep the drawing is.
function depths(top, names, room, turned) {
  const [before, after] = [names[top].reach + (turned ? 14 : 20), names[0].reach + (turned ? 16 : 32)];
  const tiers = [];
  tiers[top] = before;
  for (let t = top - 1; t >= 0; t -= 1) {
    const share = t === top - 1 ? (top > 1 ? 0.6 : 1) : 0.4 / (top - 1);
    const upright = names[t].stand === 'upright' && t > 0 ? names[t].reach : 0;
    tiers[t] = tiers[t + 1] + (turned ? (room - before - after) * share : upright + (70 + 190 * share) * Math.max(1, Math.min(1.4, room / 900)));
  }
  return { tiers, boxes: top ? tiers[top - 1] - names[top - 1].reach - 16 : 0, all: tiers[0] + after };
}

// A directed link bends to its right, as roads do: the two directions are apart.
function curve(from, to) {
  const dx = to[0] - from[0];
  const dy = to[1] - from[1];
  const length = Math.hypot(dx, dy) || 1;
  const [nx, ny] = [-dy / length, dx / length];
  const start = [from[0] + 1.5 * nx, from[1] + 1.5 * ny];
  const end = [to[0] + 1.5 * nx, to[1] + 1.5 * ny];
  const bend = [(from[0] + to[0]) / 2 + 11 * nx, (from[1] + to[1]) / 2 + 11 * ny];
  return { start, bend, end };
}

function along({ start, bend, end }, t) {
  const u = 1 - t;
  return [0, 1].map((i) => u * u * start[i] + 2 * u * t * bend[i] + t * t * end[i]);
}

const pointText = (point) => point.map((v) => v.toFixed(1)).join(' ');

function pathOf({ start, bend, end }) {
  return `M${pointText(start)}Q${pointText(bend)} ${pointText(end)}`;
}

// An arrow head on a curve, at a share of its way and so many pixels long.
function headOf(c, t, size) {
  const [tip, before] = [along(c, t), along(c, t - 0.05)];
  const turn = Math.atan2(tip[1] - before[1], tip[0] - before[0]);
  const arm = (side) => [tip[0] - size * Math.cos(turn + side), tip[1] - size * Math.sin(turn + side)];
  return `M${pointText(arm(-0.5))}L${pointText(tip)}L${pointText(arm(0.5))}`;
}

// How far a point is from a curve, which is taken for two straight pieces.
function distance(c, point) {
  const middle = along(c, 0.5);
  return Math.min(toPiece(point, c.start, middle), toPiece(point, middle, c.end));
}

function toPiece([px, py], [ax, ay], [bx, by]) {
  const [dx, dy] = [bx - ax, by - ay];
  const t = Math.max(0, Math.min(1, ((px - ax) * dx + (py - ay) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(px - ax - t * dx, py - ay - t * dy);
}
