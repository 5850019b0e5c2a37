// A large fabric: its links summed up by pod, each pod to be opened.

function podSums(method, flagged, shown) {
  const sums = new Map();
  const of = (pod) => {
    if (!sums.has(pod)) sums.set(pod, { links: 0, faulty: 0, right: 0, wrong: 0, missed: 0, unseen: 0 });
    return sums.get(pod);
  };
  for (let link = 0; link < nLinks; link += 1) if (shown(link)) of(podOf(link)).links += 1;
  for (const link of faulty) if (shown(link)) of(podOf(link)).faulty += 1;
  for (const [link, said] of judged(method, flagged)) if (shown(link)) of(podOf(link))[said] += 1;
  return [...sums].sort((a, b) => a[0] - b[0]);
}

function podCard(pod, sum, open) {
  const kinds = ['right', 'missed', 'unseen', 'wrong'];
  const figures = kinds.map((kind) => el('span', { class: sum[kind] ? 'figure' : 'figure none' }, legendMark(kind), ` ${count(sum[kind])}`));
  const name = podName(pod);
  const label = `${name}: ${sum.links} directed links, ${sum.faulty} faulty; ${kinds.map((k) => `${sum[k]} ${WORDS[k]}`).join(', ')}`;
  const card = el('button', { type: 'button', class: 'pod', 'data-links': sum.links, 'aria-label': label }, el('b', {}, name), el('small', {}, `${count(sum.links)} links, ${sum.faulty} faulty`), el('span', { class: 'figures' }, ...figures));
  card.addEventListener('click', () => open(pod));
  return card;
}

function showPods(holder, method, flagged, shown, open) {
  const cards = podSums(method, flagged, shown).map(([pod, sum]) => podCard(pod, sum, open));
  holder.replaceChildren(el('div', { class: 'podgrid' }, ...cards));
}
