// What every page needs: its data, elements, numbers as text, and tables that can be sorted.

const data = JSON.parse(document.getElementById('data').textContent);

function byId(id) {
  return document.getElementById(id);
}

// Names come in as text nodes alone: no string is ever read as HTML.
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

function short(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

// A long name of a method goes on in the next line behind a +, not within a word.
function breakable(name) {
  return name.split('+').flatMap((part, i) => (i ? ['+', el('wbr'), part] : [part]));
}

function count(n) {
  return Math.round(n).toLocaleString('en-US');
}

function percent(rate) {
  if (rate === null || rate === undefined) return '–';
  return rate === 0 ? '0 %' : `${Number((100 * rate).toPrecision(3))} %`;
}

function share(right, all) {
  return all ? (right / all).toFixed(2) : '–';
}

// Methods by the heading of their block, in their order: [[heading, methods], ...].
function inBlocks(methods, benchOf = (method) => method.bench) {
  const found = new Map();
  for (const method of methods) {
    if (!found.has(benchOf(method))) found.set(benchOf(method), []);
    found.get(benchOf(method)).push(method);
  }
  return [...found];
}

// The options of a choice of methods, in groups; the value is the number of the method.
function methodOptions(methods, chosen = 0) {
  return inBlocks(methods).map(([heading, own]) => el('optgroup', { label: heading }, ...own.map((method) => {
    const i = methods.indexOf(method);
    return el('option', { value: i, selected: i === chosen }, method.name + (method.undirected ? ' *' : ''));
  })));
}

// A block of a table of methods.
function block(heading, width, rows) {
  return el('tbody', {}, el('tr', { class: 'bench' }, el('th', { colspan: width, scope: 'rowgroup' }, el('span', {}, heading))), ...rows);
}

// ---- tables ------------------------------------------------------------------------------------

function valueOf(row, column) {
  const cell = row.cells[column];
  const said = cell.dataset.value === undefined ? cell.textContent.trim() : cell.dataset.value;
  const number = Number(said);
  return said !== '' && !Number.isNaN(number) ? number : said;
}

function compareValues(a, b, descending) {
  if (typeof a !== typeof b) return typeof a === 'number' ? -1 : 1; // what has no number comes last
  const order = typeof a === 'number' ? a - b : a.localeCompare(b, 'en', { numeric: true });
  return descending ? -order : order;
}

// The rows of a table's block, without its heading.
const rowsOf = (body) => [...body.rows].filter((row) => !row.classList.contains('bench'));

// Rows stay in their blocks.
function sortBy(table, column, descending) {
  for (const body of table.tBodies) {
    const rows = rowsOf(body).sort((a, b) => compareValues(valueOf(a, column), valueOf(b, column), descending));
    body.append(...rows);
  }
  [...table.tHead.rows[0].cells].forEach((head, i) => {
    if (i === column) head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
    else head.removeAttribute('aria-sort');
  });
}

function makeSortable(table) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = el('button', { type: 'button', class: 'sort', title: `${head.title}${head.title ? '; ' : ''}sort` });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const was = head.getAttribute('aria-sort');
      const numeric = [...table.tBodies].flatMap(rowsOf).some((row) => typeof valueOf(row, column) === 'number');
      sortBy(table, column, was ? was === 'ascending' : Boolean(numeric));
    });
  });
}

function csvOf(table) {
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const line = (row, more) => [...[...row.cells].map((cell) => cell.textContent.trim()), ...more].map(quoted).join(',');
  const lines = [...table.tBodies].flatMap((body) => {
    const heading = body.querySelector('.bench');
    return rowsOf(body).map((row) => line(row, heading ? [heading.textContent.trim()] : []));
  });
  const blocks = table.querySelector('.bench') ? ['block'] : [];
  return [line(table.tHead.rows[0], blocks), ...lines].join('\n') + '\n';
}

function offerCsv(table) {
  const button = el('button', { type: 'button', class: 'csv' }, 'CSV of this table');
  button.addEventListener('click', () => {
    const address = URL.createObjectURL(new Blob([csvOf(table)], { type: 'text/csv' }));
    el('a', { href: address, download: `${table.id}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  });
  table.closest('.wide').after(button);
}

for (const head of document.querySelectorAll('table.sortable th')) {
  if (!head.childElementCount) head.replaceChildren(...breakable(head.textContent));
}
for (const table of document.querySelectorAll('table.sortable')) {
  makeSortable(table);
  offerCsv(table);
}

for (const button of document.querySelectorAll('button.copy')) {
  button.addEventListener('click', async () => {
    const text = byId(button.dataset.of).textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = 'copied';
    } catch {
      getSelection().selectAllChildren(byId(button.dataset.of)); // a file may not write the clipboard
      button.textContent = 'selected';
    }
  });
}
