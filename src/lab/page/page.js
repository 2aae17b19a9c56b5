// Sections of parts from the page's data, and news of them where it is served.
'use strict';

const REFRESH_MS = 2000;
const sorted = new Map();   // by table: {column, down}
const drawn = new Map();    // by section: its JSON and its charts

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'text') node.textContent = value;
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const words = (name) => name.replaceAll('_', ' ');
const key_of = (cell) => cell === null ? null : Array.isArray(cell) ? cell[0] : cell;
const text_of = (cell) => cell === null ? '–' : Array.isArray(cell) ? cell[1] : cell;

function compare(a, b) {
  const x = key_of(a), y = key_of(b);
  if (x === null || y === null) return (x === null) - (y === null);
  return typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y), 'en', {numeric: true});
}

function table(part, id, above) {
  const body = make('tbody');
  const heads = part.columns.map((column, i) => {
    const th = make('th', {scope: 'col', class: column.numeric ? 'number' : ''});
    th.append(make('button', {type: 'button', text: words(column.name), onclick: () => {
      const now = sorted.get(id);
      sorted.set(id, {column: i, down: now && now.column === i ? !now.down : false});
      fill();
    }}));
    return th;
  });
  const filter = make('input', {class: 'filter', type: 'search', placeholder: 'Filter rows', 'aria-label': 'Filter rows', oninput: fill});
  function fill() {
    const order = sorted.get(id);
    const wanted = filter.value.toLowerCase();
    let rows = part.rows.filter((row) => !wanted || row.some((cell) => String(text_of(cell)).toLowerCase().includes(wanted)));
    heads.forEach((th, i) => {
      if (order && order.column === i) th.setAttribute('aria-sort', order.down ? 'descending' : 'ascending');
      else th.removeAttribute('aria-sort');
    });
    if (order) {
      const missing = rows.filter((row) => row[order.column] === null);
      rows = rows.filter((row) => row[order.column] !== null).sort((a, b) => compare(a[order.column], b[order.column]));
      if (order.down) rows.reverse();
      rows.push(...missing);
    }
    body.replaceChildren(...rows.map((row) => make('tr', {}, ...row.map((cell, i) => {
      const text = text_of(cell);
      const kinds = [part.columns[i].numeric ? 'number' : ''];
      if (cell === null) kinds.push('none');
      if (text === 'better' || text === 'faster') kinds.push('better');
      if (text === 'worse' || text === 'slower') kinds.push('worse');
      if (String(text).length > 48) kinds.push('long');
      return make('td', {class: kinds.join(' ').trim(), text});
    }))));
  }
  fill();
  const out = make('div', {class: 'part'});
  if (part.title && part.title !== above) out.append(make('h3', {text: part.title}));
  if (part.rows.length > 15) out.append(filter);
  out.append(make('div', {class: 'scroll', tabindex: '0'}, make('table', {}, make('thead', {}, make('tr', {}, ...heads)), body)));
  if (part.notes.length) out.append(make('ul', {class: 'notes'}, ...part.notes.map((text) => make('li', {text}))));
  return out;
}

function heat(part) {
  const all = part.cells.flat().filter((v) => v !== null).map(Math.log);
  const low = Math.min(...all, 0), high = Math.max(...all, 0.01);
  const cell = (value, r, c) => {
    const share = value === null ? 0 : (Math.log(value) - low) / (high - low);
    const about = `${short(part.rows[r])} ${part.down}, ${short(part.columns[c])} ${part.across}: ${short(value)} times`;
    return make('td', {style: `background: rgba(var(--heat), ${(0.75 * share).toFixed(3)})`, title: about, text: value === null ? '–' : value.toFixed(1) + '×'});
  };
  return make('figure', {class: 'wide'}, make('h3', {text: part.title}),
    make('div', {class: 'scroll', tabindex: '0'}, make('table', {class: 'heat'},
      make('thead', {}, make('tr', {}, make('th', {text: `${part.down} \\ ${part.across}`}), ...part.columns.map((c) => make('th', {class: 'number', text: short(c)})))),
      make('tbody', {}, ...part.cells.map((line, r) => make('tr', {}, make('th', {scope: 'row', text: short(part.rows[r])}), ...line.map((v, c) => cell(v, r, c))))))));
}

// Drawn when it is in the page: a chart takes its size from there.
function chart(part, later) {
  const canvas = make('canvas', {role: 'img', 'aria-label': part.title});
  const plot = make('div', {class: 'plot'}, canvas);
  const wide = part.kind === 'stacked' || part.kind === 'roofline';
  const figure = make('figure', {class: wide ? 'wide' : ''}, make('h3', {text: part.title}), plot);
  if (part.note) figure.append(make('figcaption', {text: part.note}));
  later.push(() => {
    const config = CHARTS[part.kind](part);
    plot.style.height = config.height + 'px';
    return new Chart(canvas, config);
  });
  return figure;
}

function facts(of) {
  const out = make('div', {class: 'facts'});
  if (of.command) out.append(make('div', {}, make('code', {text: of.command})));
  const rest = Object.entries(of).filter(([name]) => name !== 'command');
  out.append(make('div', {text: rest.map(([name, value]) => name === 'run' || name === 'seed' ? `${name} ${value}` : value).join(' · ')}));
  return out;
}

function section(of, id) {
  const later = [];
  const content = [];
  if (of.facts) content.push(facts(of.facts));
  if (of.progress) content.push(make('p', {text: of.progress}));
  let charts = null;
  of.parts.forEach((part, i) => {
    if (part.kind === 'table') {
      charts = null;
      return content.push(table(part, `${id}/${i}`, of.title));
    }
    if (part.kind !== 'heat' && typeof Chart === 'undefined') return;
    if (!charts) content.push(charts = make('div', {class: 'charts'}));
    charts.append(part.kind === 'heat' ? heat(part) : chart(part, later));
  });
  const title = make('h2', {text: of.title});
  const node = make('section', {id, class: of.running ? 'running' : ''});
  if (of.folded) node.append(make('details', {}, make('summary', {}, title), ...content));
  else node.append(title, ...content);
  return {node, draw: () => later.map((f) => f())};
}

function id_of(of, i) {
  return of.running ? 'running' : of.facts ? `run-${of.facts.run}` : `section-${i}`;
}

// Titles of races tell them apart; those of suites are long.
function label_of(of) {
  return of.group && of.group.startsWith('suite ') ? of.group : of.title;
}

// Sections that are as they were stay as they are.
function show(data, anew) {
  document.querySelector('h1').textContent = data.title;
  document.querySelector('#made').textContent = (data.live ? 'Live, as of ' : 'Made ') + data.made;
  document.querySelector('footer').textContent = `gallop ${data.version}`;
  const main = document.querySelector('main');
  const ids = data.sections.map(id_of);
  for (const [id, old] of drawn) {
    if (anew || !ids.includes(id)) {
      old.charts.forEach((c) => c.destroy());
      old.node.remove();
      drawn.delete(id);
    }
  }
  data.sections.forEach((of, i) => {
    const id = ids[i], json = JSON.stringify(of), old = drawn.get(id);
    if (old && old.json === json) return main.append(old.node);
    if (old) old.charts.forEach((c) => c.destroy());
    const made = section(of, id);
    if (old) old.node.remove();
    main.append(made.node);
    drawn.set(id, {json, node: made.node, charts: made.draw()});
  });
  if (!data.sections.length) main.replaceChildren(make('section', {text: 'No results yet: they appear here when a race, bench or suite has some.'}));
  document.querySelector('nav').replaceChildren(...data.sections.map((of, i) => make('a', {href: '#' + ids[i], text: label_of(of)})));
}

let data = JSON.parse(document.querySelector('#data').textContent);

function use_theme(name) {
  document.documentElement.dataset.theme = name;
}

const prefers_dark = matchMedia('(prefers-color-scheme: dark)');
use_theme(prefers_dark.matches ? 'dark' : 'light');
prefers_dark.addEventListener('change', () => { use_theme(prefers_dark.matches ? 'dark' : 'light'); show(data, true); });
document.querySelector('#theme').addEventListener('click', () => {
  use_theme(theme() === 'dark' ? 'light' : 'dark');
  show(data, true);
});
// Paper is white, and what is folded is read there too.
let before_print = 'light';
addEventListener('beforeprint', () => {
  before_print = theme();
  use_theme('light');
  show(data, true);
});
addEventListener('afterprint', () => { use_theme(before_print); show(data, true); });

show(data, true);

if (data.live) {
  const refresh = async () => {
    try {
      const answer = await fetch('data.json', {cache: 'no-store'});
      if (!answer.ok) throw new Error(answer.statusText);
      data = await answer.json();
      show(data, false);
    } catch (e) {
      document.querySelector('#made').textContent = `No answer since ${data.made}; gallop serve may have ended.`;
    }
    setTimeout(refresh, REFRESH_MS);
  };
  setTimeout(refresh, REFRESH_MS);
}
