// The way of one flow's packets, for teaching: who writes the shim, who counts where, where they die.

function step(said, i) {
  const last = said.switches.length - 1;
  const lines = [];
  if (i > 0 && said.monitor[i]) lines.push('DSM counts it by its pathBF');
  if (i === 0) lines.push('inserts the shim');
  if (said.monitor[i] && i < last) lines.push('begins a segment: pathBF = 0');
  if (i < last) lines.push(`pathBF |= own mask: ${said.path_bf[i]}`);
  if (said.monitor[i] && i < last) lines.push('USM counts it, marks it');
  if (i === last) lines.push('takes off the shim');
  return lines;
}

function packetCard(said, i) {
  const lines = step(said, i).map((line) => el('li', {}, line));
  const kind = said.monitor[i] ? 'hop monitor' : 'hop';
  return el('li', { class: kind }, el('b', {}, fabric.names[said.switches[i]]), el('ul', {}, ...lines));
}

function packetWay(said) {
  const cards = [];
  said.switches.forEach((_, i) => {
    cards.push(packetCard(said, i));
    if (i === said.links.length) return;
    const dies = said.drops[i];
    cards.push(el('li', { class: dies ? 'wire lossy' : 'wire' }, dies ? `${count(dies)} lost here` : null));
  });
  const meters = said.meters.map((meter) => {
    const between = `${fabric.names[said.switches[meter.from]]} → ${fabric.names[said.switches[meter.to]]}`;
    return el('li', {}, `segment ${between}, ${meter.epochs} epochs: upstream ${count(meter.sent)}, downstream ${count(meter.sent - meter.lost)}, so ${count(meter.lost)} lost on it.`);
  });
  return [
    el('p', {}, `${said.protocol} ${said.src} to ${said.dst}: sent ${count(said.sent)} packets, lost ${count(said.lost)}.`),
    el('ol', { class: 'way' }, ...cards),
    el('ul', {}, ...meters),
    el('p', { class: 'hint' }, 'Meters count a flow while it is monitored, so they may have seen fewer packets than it sent.'),
  ];
}

function showPackets() {
  const chooser = byId('flow');
  if (!chooser) return;
  options(chooser, data.packets.map((_, i) => i), (i) => `${data.packets[i].src} to ${data.packets[i].dst}`);
  const show_ = () => byId('packet').replaceChildren(...packetWay(data.packets[chooser.value]));
  chooser.addEventListener('change', show_);
  show_();
}
