// Panels of a paper's figure: our series with intervals, and what the paper prints.

const DIAMOND = 'M0 -6.5L6.5 0L0 6.5L-6.5 0Z';

const brief = (value) => (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6) ? value.toExponential(1).replace('.0e', 'e') : `${Number(value.toPrecision(4))}`);

// A scale: position of a value from 0 to 1, and its ticks.
function scaleOf(values, logarithmic, limits) {
  const usual = values.filter((value) => Number.isFinite(value));
  let [low, high] = limits || [Math.min(...usual), Math.max(...usual)];
  if (logarithmic) {
    const positive = usual.filter((value) => value > 0);
    const zero = usual.some((value) => value <= 0);
    const least = Math.log10(Math.min(...positive, high > 0 ? high : 1));
    const most = Math.log10(Math.max(...positive, 1e-12));
    const below = Math.floor(least - 1e-9) - (zero ? 1 : 0);
    const span = Math.max(Math.ceil(most + 1e-9) - below, 1);
    const at = (value) => (value > 0 ? Math.max((Math.log10(value) - below) / span, 0) : 0);
    const step = Math.ceil(span / 6);
    const ticks = Array.from({ length: Math.floor(span / step) + 1 }, (_, i) => 10 ** (below + i * step));
    return { at, ticks: zero ? ticks.slice(1).concat(0) : ticks };
  }
  if (!limits) {
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    [low, high] = [low >= 0 && low < 0.35 * high ? 0 : low - room, high + room];
  }
  const rough = (high - low) / 5;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * unit).find((n) => n >= rough);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n += 1) ticks.push(Number((n * step).toPrecision(10)));
  return { at: (value) => (value - low) / (high - low), ticks };
}

function clamped(value) {
  return Math.max(-0.02, Math.min(1.02, value));
}

// holder gets the panel's drawing. panel: points, printed, and by x the addresses that marks lead to.
function drawPanel(holder, panel, names, width, height, small) {
  const { points, printed } = panel;
  const values = [...points.flatMap((p) => [p.mean, p.low, p.high]), ...printed.map((p) => p.value)].filter((v) => v !== null);
  const labels = [...new Set([...points.map((p) => p.x), ...printed.filter((p) => p.kind !== 'bound').map((p) => p.x)])];
  const across = panel.numeric ? scaleOf(labels.map(Number), panel.logX, null) : null;
  const own = [...new Set(points.map((p) => p.series))];
  const up = scaleOf(values, panel.logY, panel.limits);
  const slot = width / labels.length;
  const tilted = !panel.numeric && labels.some((label) => 6.4 * label.length > slot);
  const before = labels.map((label, i) => (tilted ? 5.6 * Math.min(label.length, 20) - slot * (i + 0.5) : 0));
  const [left, top] = [small ? 40 : Math.max(58, ...before), 8];
  const beside = panel.numeric ? (panel.links ? Math.min(5 * own.length, 40) : 0) : slot * 0.7; // so that no series hides another
  const shift = (series) => (own.length < 2 || !own.includes(series) ? 0 : ((own.indexOf(series) + 0.5) / own.length - 0.5) * beside);
  const x = (label, series) => left + shift(series) + (panel.numeric ? width * across.at(Number(label)) : slot * (labels.indexOf(label) + 0.5));
  const y = (value) => top + height * (1 - clamped(up.at(value)));
  const parts = [];
  for (const tick of up.ticks) parts.push(svg('line', { class: 'grid', x1: left, x2: left + width, y1: y(tick), y2: y(tick) }), svg('text', { class: 'end', x: left - 5, y: y(tick) + 4 }, brief(tick)));
  const few = panel.numeric && labels.length < 8 && !small;
  const marks = few ? labels.map((label) => [label, x(label, null)]) : panel.numeric ? across.ticks.map((tick) => [brief(tick), left + width * across.at(tick)]) : labels.map((label) => [label, x(label, null)]);
  for (const [text, at] of marks) {
    if (panel.numeric) parts.push(svg('line', { class: 'grid', x1: at, x2: at, y1: top, y2: top + height }));
    if (!small || panel.numeric) parts.push(svg('text', tilted ? { class: 'end', transform: `translate(${at + 4} ${top + height + 13}) rotate(-32)` } : { class: 'middle', x: at, y: top + height + 16 }, svg('title', {}, text), short(text, 20)));
  }
  const bottom = small && !panel.numeric ? 6 : tilted ? 20 + Math.min(70, 3.6 * Math.max(...labels.map((label) => Math.min(label.length, 20)))) : 22;
  if (!small) {
    parts.push(svg('text', { class: 'middle', x: left + width / 2, y: top + height + bottom + 12 }, panel.x));
    parts.push(svg('text', { class: 'middle', transform: `translate(11 ${top + height / 2}) rotate(-90)` }, panel.y));
  }
  for (const p of printed.filter((each) => each.kind === 'bound')) {
    const from = p.side === 'above' ? top : y(p.value);
    const to = p.side === 'above' ? y(p.value) : top + height;
    const there = labels.includes(p.x) && !panel.numeric;
    const [begin, wide] = there ? [x(p.x, null) - slot * 0.45, slot * 0.9] : [left, width];
    const said = `paper: ${names[p.series] ?? p.name} at ${p.x} ${p.side} ${brief(p.value)}`;
    parts.push(svg('g', { class: `papers ${classOf(p.series)}`, 'data-series': p.series }, svg('title', {}, said), svg('rect', { class: 'bounded', x: begin, y: from, width: wide, height: Math.max(to - from, 0) }), svg('line', { class: 'bounding', x1: begin, x2: begin + wide, y1: y(p.value), y2: y(p.value) })));
  }
  for (const series of own) parts.push(seriesOf(points.filter((p) => p.series === series), series, names, x, y, panel, small));
  for (const p of printed.filter((each) => each.kind !== 'bound')) {
    const said = `paper: ${names[p.series] ?? p.name} at ${p.x}: ${brief(p.value)} (${p.kind})`;
    parts.push(svg('g', { class: `papers ${classOf(p.series)}`, 'data-series': p.series }, svg('path', { class: `printed ${p.kind}`, d: DIAMOND, transform: `translate(${x(p.x, p.series).toFixed(1)} ${y(p.value).toFixed(1)})${small ? ' scale(0.7)' : ''}`, ...(small ? {} : { tabindex: 0, role: 'img', 'aria-label': said }) }, svg('title', {}, said))));
  }
  const label = `${panel.y} over ${panel.x}: ${own.map((series) => names[series]).join(', ')}; the tables have the figures`;
  holder.append(svg('svg', { class: 'chart', role: small ? 'img' : 'group', 'aria-label': label, width: left + width + 14, height: top + height + bottom + (small ? 0 : 20) }, ...parts));
}

const classOf = (series) => (series === null || series === undefined ? 'nobody' : `c${series % 8}`);

function seriesOf(points, series, names, x, y, panel, small) {
  const known = panel.numeric ? [...points].sort((a, b) => Number(a.x) - Number(b.x)) : points;
  const line = known.map((p) => `${x(p.x, series).toFixed(1)},${y(p.mean).toFixed(1)}`).join(' ');
  const marks = known.map((p) => {
    const bounds = p.low === null ? '' : `, ${brief(p.low)} to ${brief(p.high)}`;
    const said = `${names[series]} at ${p.x}: ${brief(p.mean)}${bounds} (${p.draws} ${panel.links ? 'runs' : 'draws'})`;
    const bar = p.low === null || p.low === p.high ? null : svg('line', { class: `bound thin c${series % 8}`, x1: x(p.x, series), x2: x(p.x, series), y1: y(p.low), y2: y(p.high) });
    const sign = signOf(series, [x(p.x, series), y(p.mean)]);
    if (small) sign.setAttribute('transform', `${sign.getAttribute('transform')} scale(0.7)`);
    const way = panel.links ? { href: panel.links[p.x] } : { tabindex: 0, role: 'img' };
    return svg(panel.links ? 'a' : 'g', { class: 'point', ...(small ? {} : { ...way, 'aria-label': said }) }, svg('title', {}, said), bar, sign);
  });
  const drawn = panel.numeric ? svg('polyline', { class: lineOf(series), points: line }) : null;
  return svg('g', { class: `method c${series % 8}`, 'data-series': series }, drawn, ...marks);
}
