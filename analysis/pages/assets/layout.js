// Where switches and links are drawn: tiers from bottom to top, pods side by side.

const DENSE = [[40, 18], [160, 12], [Infinity, 4]]; // up to so many switches in a row: pixels each

function groupBy(items, key) {
  const groups = new Map();
  for (const item of items) {
    const k = key(item);
    if (!groups.has(k)) groups.set(k, []);
    groups.get(k).push(item);
  }
  return groups;
}

function slotWidth(slots, room) {
  const least = DENSE.find(([most]) => slots <= most)[1];
  return Math.max(least, Math.min(96, room / slots));
}

// Positions of switches: {x, y, width, height, slot, boxes} for the switches given, in pixels.
function place(switches, width) {
  const { tier, pod } = data.fabric;
  const top = Math.max(...tier);
  const lower = switches.filter((s) => tier[s] < top);
  const upper = switches.filter((s) => tier[s] === top);
  const groups = [...groupBy(lower, (s) => pod[s])].sort((a, b) => (a[0] < 0) - (b[0] < 0) || a[0] - b[0]);
  const rows = groups.map(([, own]) => [...groupBy(own, (s) => tier[s])]);
  const needed = rows.map((tiers) => Math.max(...tiers.map(([, own]) => own.length)));
  const boxed = groups.some(([, own]) => own.length > 1);
  const gap = boxed ? 0.7 : 0;
  const slots = needed.reduce((sum, n) => sum + n + gap, 0);
  const left = 56;
  const slot = slotWidth(Math.max(slots, 1), width - left - 12);
  const topSlot = upper.length ? DENSE.find(([most]) => upper.length <= most)[1] : 0;
  const inner = Math.max(slots * slot, upper.length * topSlot, Math.min(width - left - 12, 480));
  const y = heights(top);
  const x = new Map();
  const boxes = [];
  let at = left + (inner - slots * slot) / 2;
  groups.forEach(([number], i) => {
    const room = needed[i] * slot;
    for (const [, own] of rows[i]) {
      own.forEach((s, nth) => x.set(s, at + (gap * slot) / 2 + (room * (nth + 0.5)) / own.length));
    }
    if (boxed && number >= 0) {
      boxes.push({ pod: number, x: at + 1, width: room + gap * slot - 2, y: y[top - 1] - 20, bottom: y[0] + 40 });
    }
    at += room + gap * slot;
  });
  upper.forEach((s, nth) => x.set(s, left + (inner * (nth + 0.5)) / upper.length));
  return { x, y, slot, topSlot: inner / Math.max(upper.length, 1), boxes, width: left + inner + 12, height: y[0] + 46 };
}

// The height of each tier, the highest at the top.
function heights(top) {
  const y = [];
  y[top] = 34;
  for (let t = top - 1; t >= 0; t -= 1) y[t] = y[t + 1] + (t === top - 1 ? (top > 1 ? 190 : 260) : 130);
  return y;
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

function pathOf({ start, bend, end }) {
  const p = (point) => point.map((v) => v.toFixed(1)).join(' ');
  return `M${p(start)}Q${p(bend)} ${p(end)}`;
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
