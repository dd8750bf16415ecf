// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The page that `report_html` fills: its style, its elements and its script. The script puts text into the page by
// textContent only, so that a name from a record is never markup.
#include "compare/report_html.h"

namespace dbg::compare {
namespace {

constexpr std::string_view kPage = R"page(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>dbg compare</title>
<style>
:root { color-scheme: light; --back: #fff; --text: #1b1f24; --soft: #57606a; --line: #d0d7de; --panel: #f6f8fa;
  --same: #2da44e; --passed: #0969da; --failed: #cf222e; --skipped: #9a6700; --mark: #fff8c5; }
:root[data-theme=dark] { color-scheme: dark; --back: #0d1117; --text: #e6edf3; --soft: #9198a1; --line: #30363d;
  --panel: #161b22; --same: #3fb950; --passed: #58a6ff; --failed: #ff7b72; --skipped: #d29922; --mark: #3a3000; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 1400px; padding: 16px; background: var(--back);
  color: var(--text); }
h1 { font-size: 20px; margin: 0 0 8px; } h2 { font-size: 16px; margin: 20px 0 8px; }
code, .mono, table { font: 12.5px/1.5 ui-monospace, monospace; }
.soft { color: var(--soft); } .row { display: flex; gap: 12px; flex-wrap: wrap; align-items: center; }
.landmark { border-left: 4px solid var(--failed); background: var(--panel); padding: 6px 12px; margin: 6px 0; overflow-wrap: anywhere; }
.landmark.none { border-color: var(--same); }
button, input { font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: 3px 9px; }
button { cursor: pointer; } :focus-visible { outline: 2px solid var(--passed); outline-offset: 1px; }
#chart { width: 100%; height: 260px; display: block; border: 1px solid var(--line); background: var(--panel); }
#chart text { fill: var(--soft); font: 11px system-ui, sans-serif; } #chart .grid { stroke: var(--line); }
#chart .limit { stroke: var(--skipped); fill: none; stroke-dasharray: 4 3; }
#chart circle { cursor: pointer; } #chart circle.picked { stroke: var(--text); stroke-width: 2; r: 6px; }
.same { fill: var(--same); color: var(--same); } .passed { fill: var(--passed); color: var(--passed); }
.failed { fill: var(--failed); color: var(--failed); } .skipped { fill: var(--skipped); color: var(--skipped); }
#scroll { height: 420px; overflow: auto; border: 1px solid var(--line); }
#table { border-collapse: separate; border-spacing: 0; width: 100%; }
#table th { position: sticky; top: 0; background: var(--panel); border-bottom: 1px solid var(--line); text-align: left; padding: 0; }
#table th button { border: 0; background: none; padding: 4px 8px; font-weight: 600; width: 100%; text-align: left; white-space: nowrap; }
#table th.n button { text-align: right; }
#table tbody tr.pair { height: 26px; cursor: pointer; } #table td { padding: 0 8px; white-space: nowrap; max-width: 560px; overflow: hidden; text-overflow: ellipsis; }
#table tr.picked td { background: var(--mark); } #table td.n { text-align: right; }
#detail { border: 1px solid var(--line); background: var(--panel); padding: 10px 14px; margin-top: 10px; overflow-wrap: anywhere; }
#detail table td, #detail table th { padding: 1px 8px; text-align: right; border: 1px solid var(--line); }
#detail canvas { image-rendering: pixelated; width: 576px; max-width: 100%; border: 1px solid var(--line); }
#detail svg { width: 480px; max-width: 100%; height: 140px; } ul { margin: 4px 0; padding-left: 20px; overflow-wrap: anywhere; }
</style>
</head>
<body>
<div class="row"><h1>Where do they part?</h1><button id="theme" type="button">dark / light</button></div>
<div id="head"></div>
<h2 id="chart-title">rel_diff over the order of dumping</h2>
<svg id="chart" tabindex="0" role="application" aria-labelledby="chart-title"
  aria-description="One point a pair; left and right arrow keys step through the pairs"></svg>
<h2>Pairs</h2>
<div class="row">
<label>Filter <input id="filter" type="search" placeholder="name, tag, reason" size="30"></label>
<span id="verdicts" class="row"></span><span id="count" class="soft" aria-live="polite"></span>
</div>
<div id="scroll" tabindex="0" aria-label="Table of pairs; up and down arrow keys step through it"><table id="table"><thead><tr></tr></thead><tbody></tbody></table></div>
<div id="detail" aria-live="polite" hidden></div>
<div id="rest"></div>
<script id="data" type="application/json">@DATA@</script>
<script>
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const pairs = data.pairs;
const $ = id => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';
function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}
function draw(parent, tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}
const kind = verdict => verdict === 'same bits' ? 'same' : verdict;
const numeric = value => value === 'inf' ? Infinity : value === '-inf' ? -Infinity : typeof value === 'number' ? value : NaN;
function shown(value) {
  if (value === null || value === undefined) return '-';
  if (typeof value !== 'number') return String(value);
  return value === 0 ? '0' : Math.abs(value) >= 0.001 && Math.abs(value) < 100000 ? String(+value.toPrecision(4)) : value.toExponential(2);
}
const label = pair => pair.name + (pair.tags ? ' ' + pair.tags : '');

const dark = matchMedia('(prefers-color-scheme: dark)');
let theme = dark.matches ? 'dark' : 'light';
function setTheme(name) { theme = name; document.documentElement.dataset.theme = name; }
setTheme(theme);
$('theme').onclick = () => setTheme(theme === 'dark' ? 'light' : 'dark');

// The headline. What is said of a pair is said once.
const told = new Set();
const head = $('head');
head.append(make('div', data.summary, 'mono'), make('div', 'baseline: ' + data.baseline, 'soft mono'),
            make('div', 'target: ' + data.target, 'soft mono'));
if (data.noise) head.append(make('div', 'noise: ' + data.noise, 'soft mono'));
for (const note of data.notes) head.append(make('div', note, 'soft'));
for (const [what, found] of [['First other bits', data.first_bits], ['First beyond tolerance', data.first_beyond], ['First jump', data.first_jump]]) {
  const box = make('div', undefined, 'landmark' + (found ? '' : ' none'));
  box.append(make('b', what + ': '));
  if (found) {
    const link = make('button', found.label, 'mono');
    link.onclick = () => pick(found.pair, true);
    box.append(link);
    if (!told.has(found.pair)) box.append(make('div', found.difference, 'mono'));
    told.add(found.pair);
    box.append(make('div', found.good === null ? 'nothing right before it' : 'last right before it: ' + found.good, 'soft mono'));
  } else {
    box.append('none');
  }
  head.append(box);
}

// The chart: log scale; what has the same values lies on the floor, what could not be measured on the ceiling.
const chart = $('chart');
const points = [];
function limitOf(pair) {
  const rel = /\brel(?:_diff)? <=? ([0-9.e+-]+)/.exec(pair.tolerance);
  if (rel) return +rel[1];
  const noise = /^([0-9.e+-]+) times the noise of ([0-9.e+-]+)/.exec(pair.tolerance);
  return noise ? (noise[1] * noise[2]) ** 2 / 2 : NaN;
}
function drawChart() {
  const width = 1360, height = 260, left = 52, right = 10, top = 14, bottom = 22;
  chart.setAttribute('viewBox', `0 0 ${width} ${height}`);
  chart.setAttribute('preserveAspectRatio', 'none');
  let low = -4, high = 0;
  for (const pair of pairs) {
    for (const value of [numeric(pair.rel), limitOf(pair)]) {
      if (!(value > 0) || !isFinite(value)) continue;
      low = Math.min(low, Math.floor(Math.log10(value)));
      high = Math.max(high, Math.ceil(Math.log10(value)));
    }
  }
  low = Math.max(low, -34) - 1;
  // What has no place on the scale gets a line of its own above it.
  const highest = high;
  if (pairs.some(pair => !isFinite(numeric(pair.rel)))) {
    high += 1;
    draw(chart, 'line', {class: 'grid', x1: left, x2: width - right, y1: top, y2: top});
    draw(chart, 'text', {x: 4, y: top + 4}, 'inf, none');
  }
  const x = at => left + (pairs.length < 2 ? 0.5 : at / (pairs.length - 1)) * (width - left - right);
  const y = rel => {
    if (isNaN(rel) || rel === Infinity) return top;
    if (rel <= 0) return height - bottom;
    return height - bottom - (Math.max(Math.log10(rel), low) - low) / (high - low) * (height - top - bottom);
  };
  const step = Math.max(1, Math.ceil((high - low) / 8));
  for (let decade = highest; decade > low; decade -= step) {
    draw(chart, 'line', {class: 'grid', x1: left, x2: width - right, y1: y(10 ** decade), y2: y(10 ** decade)});
    draw(chart, 'text', {x: 4, y: y(10 ** decade) + 4}, '1e' + decade);
  }
  draw(chart, 'text', {x: 4, y: height - bottom + 4}, 'equal');
  draw(chart, 'text', {x: left, y: height - 6}, 'first dumped');
  draw(chart, 'text', {x: width - right, y: height - 6, 'text-anchor': 'end'}, 'last');
  let path = '', drawing = false;
  pairs.forEach((pair, at) => {
    const limit = limitOf(pair);
    if (!(limit > 0)) { drawing = false; return; }
    path += (drawing ? 'L' : 'M') + x(at).toFixed(1) + ' ' + y(limit).toFixed(1);
    drawing = true;
  });
  draw(chart, 'path', {class: 'limit', d: path});
  pairs.forEach((pair, at) => {
    const rel = pair.rel === null ? NaN : numeric(pair.rel);
    points.push(draw(chart, 'circle', {class: kind(pair.verdict), cx: x(at).toFixed(1), cy: y(rel).toFixed(1),
                                       r: pair.verdict === 'failed' ? 4 : 2.5, 'data-pair': at}));
  });
  chart.onclick = event => { if (event.target.dataset.pair !== undefined) pick(+event.target.dataset.pair, true); };
  chart.onkeydown = event => {
    const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (move === undefined || !pairs.length) return;
    event.preventDefault();
    pick(Math.min(Math.max((picked ?? -1) + move, 0), pairs.length - 1), true);
  };
}

// The table: only the rows in sight are in the page, so that ten thousand of them scroll.
const columns = [
  {title: '#', of: (pair, at) => at + 1, numeric: true},
  {title: 'step', of: pair => pair.step, numeric: true},
  {title: 'rank', of: pair => pair.rank},
  {title: 'pair', of: label},
  {title: 'verdict', of: pair => pair.verdict},
  {title: 'rel_diff', of: pair => pair.rel, numeric: true},
  {title: 'max_abs', of: pair => pair.abs, numeric: true},
  {title: 'outside', of: pair => pair.outside, numeric: true},
  {title: 'growth', of: pair => pair.growth, numeric: true},
  {title: 'why', of: pair => pair.why},
];
const scroll = $('scroll'), body = $('table').tBodies[0], rowHeight = 26;
let order = [], picked = null, sortedBy = 0, descending = false;
const wanted = new Set(['same bits', 'passed', 'failed', 'skipped']);
function arrange() {
  const text = $('filter').value.toLowerCase();
  order = [];
  pairs.forEach((pair, at) => {
    if (!wanted.has(pair.verdict)) return;
    if (text && !(label(pair) + ' step=' + pair.step + ' rank=' + pair.rank + ' ' + pair.verdict + ' ' + pair.why).toLowerCase().includes(text)) return;
    order.push(at);
  });
  const column = columns[sortedBy];
  const key = at => column.of(pairs[at], at);
  order.sort((a, b) => {
    let result;
    if (column.numeric) {
      const x = numeric(key(a)), y = numeric(key(b));
      result = isNaN(x) || isNaN(y) ? isNaN(y) - isNaN(x) : x === y ? 0 : x - y;  // what is no number comes first
    } else {
      result = key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0;
    }
    return (descending ? -result : result) || a - b;
  });
  [...$('table').tHead.rows[0].cells].forEach((cell, at) => {
    cell.setAttribute('aria-sort', at !== sortedBy ? 'none' : descending ? 'descending' : 'ascending');
    cell.firstChild.textContent = columns[at].title + (at !== sortedBy ? '' : descending ? ' ▾' : ' ▴');
  });
  $('count').textContent = order.length + ' of ' + pairs.length;
  show();
}
function show() {
  const first = Math.max(0, Math.floor(scroll.scrollTop / rowHeight) - 10);
  const last = Math.min(order.length, first + Math.ceil(scroll.clientHeight / rowHeight) + 20);
  const space = rows => { const row = make('tr'); row.style.height = rows * rowHeight + 'px'; return row; };
  const shownRows = [space(first)];
  for (const at of order.slice(first, last)) {
    const row = make('tr', undefined, 'pair' + (at === picked ? ' picked' : ''));
    row.dataset.pair = at;
    for (const column of columns) {
      const value = column.of(pairs[at], at);
      const cell = make('td', column.numeric ? shown(value) : value, column.numeric ? 'n' : undefined);
      if (column.title === 'verdict') cell.className = kind(value);
      if (!column.numeric) cell.title = value;
      row.append(cell);
    }
    shownRows.push(row);
  }
  shownRows.push(space(order.length - last));
  body.replaceChildren(...shownRows);
}
function pick(at, scrolls) {
  if (picked !== null) points[picked].classList.remove('picked');
  picked = at;
  points[at].classList.add('picked');
  const place = order.indexOf(at);
  if (scrolls && place >= 0) scroll.scrollTop = Math.max(0, place * rowHeight - scroll.clientHeight / 2);
  show();
  showDetail(pairs[at]);
}
)page"
                                   R"page(
function rowsOf(rows) {
  const table = make('table');
  for (const row of rows) {
    const line = make('tr');
    for (const cell of row) line.append(make('td', typeof cell === 'number' ? shown(cell) : cell));
    table.append(line);
  }
  return table;
}
function heatOf(heat) {
  const box = make('div');
  box.append(make('div', `largest |difference| in each cell; rows: ${heat.row_label}, columns: ${heat.column_label}; brightest: ${shown(heat.largest)}, each shade a tenth of a decade; magenta: not finite`, 'soft'));
  const canvas = make('canvas'), levels = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_';
  canvas.width = heat.columns; canvas.height = heat.rows;
  canvas.style.height = Math.max(24, Math.min(288, heat.rows * 6)) + 'px';
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', 'heat map of the difference');
  const context = canvas.getContext('2d');
  for (let at = 0; at < heat.cells.length; ++at) {
    const level = levels.indexOf(heat.cells[at]), part = level / 62;
    context.fillStyle = level === 63 ? '#ff00ff' : level === 0 ? '#101418' :
      `rgb(${Math.round(255 * Math.min(1, part * 1.6))},${Math.round(230 * part * part)},${Math.round(90 + 60 * Math.sin(part * 3.1))})`;
    context.fillRect(at % heat.columns, Math.floor(at / heat.columns), 1, 1);
  }
  box.append(canvas);
  return box;
}
function histogramOf(picture) {
  const box = make('div'), svg = document.createElementNS(SVG, 'svg');
  box.append(make('div', `values from ${shown(picture.low)} to ${shown(picture.high)}, square root of the counts: baseline filled, target as a line`, 'soft'), svg);
  const bins = picture.baseline_histogram.length, width = 480, height = 140;
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  const most = Math.sqrt(Math.max(1, ...picture.baseline_histogram, ...picture.target_histogram));
  const y = count => height - 2 - Math.sqrt(count) / most * (height - 8);
  picture.baseline_histogram.forEach((count, at) => draw(svg, 'rect', {class: 'passed', 'fill-opacity': 0.45, x: at * width / bins, width: width / bins - 1, y: y(count), height: height - y(count)}));
  let path = '';
  picture.target_histogram.forEach((count, at) => { path += (at ? 'L' : 'M') + at * width / bins + ' ' + y(count) + 'H' + (at + 1) * width / bins; });
  draw(svg, 'path', {d: path, fill: 'none', stroke: 'var(--failed)', 'stroke-width': 1.5});
  return box;
}
function showDetail(pair) {
  const detail = $('detail');
  detail.hidden = false;
  detail.replaceChildren(make('h2', `step=${pair.step} rank=${pair.rank} ${label(pair)}: ${pair.verdict}`));
  const add = (title, text) => { if (text) detail.append(make('div', title + text, 'mono')); };
  add('', pair.difference); add('', pair.why); add('held against: ', pair.tolerance); add('note: ', pair.note); add('', pair.shapes);
  if (pair.target_name !== undefined && pair.target_name !== pair.name) add('in the target: ', pair.target_name);
  if (pair.target_rank !== pair.rank) add('ranks of the target: ', pair.target_rank);
  for (const file of pair.files || []) add('', file);
  if (pair.percentiles && pair.percentiles.length) {
    detail.append(make('h2', 'percentiles'), rowsOf([['', ...data.percents.map(p => 'p' + p)], ...pair.percentiles]));
  }
  if (!pair.picture) return;
  detail.append(make('h2', 'where'), heatOf(pair.picture.heat), make('h2', 'values'), histogramOf(pair.picture),
                make('h2', 'corner of the baseline'), rowsOf(pair.picture.baseline_corner),
                make('h2', 'corner of the target'), rowsOf(pair.picture.target_corner));
}

columns.forEach((column, at) => {
  const cell = make('th', undefined, column.numeric ? 'n' : undefined), button = make('button', column.title);
  cell.scope = 'col';
  button.onclick = () => { descending = at === sortedBy && !descending; sortedBy = at; arrange(); };
  cell.append(button);
  $('table').tHead.rows[0].append(cell);
});
for (const verdict of ['same bits', 'passed', 'failed', 'skipped']) {
  const box = make('input'), text = make('label', undefined, kind(verdict));
  box.type = 'checkbox'; box.checked = true;
  box.onchange = () => { if (box.checked) wanted.add(verdict); else wanted.delete(verdict); arrange(); };
  text.append(box, ' ' + verdict + ' (' + pairs.filter(pair => pair.verdict === verdict).length + ')');
  $('verdicts').append(text);
}
$('filter').oninput = () => { scroll.scrollTop = 0; arrange(); };
scroll.onscroll = show;
body.onclick = event => { const row = event.target.closest('tr.pair'); if (row) pick(+row.dataset.pair, false); };
scroll.onkeydown = event => {
  const move = {ArrowUp: -1, ArrowDown: 1}[event.key];
  if (move === undefined || !order.length) return;
  event.preventDefault();
  const place = order.indexOf(picked);
  pick(order[Math.min(Math.max(place + move, 0), order.length - 1)], true);
};
for (const [title, lines] of [['Without a partner', data.unpaired], ['Unreadable', data.unreadable]]) {
  if (!lines.length) continue;
  const list = make('ul', undefined, 'mono');
  for (const line of lines) list.append(make('li', line));
  $('rest').append(make('h2', title + ': ' + lines.length), list);
}
drawChart();
arrange();
const opened = data.first_jump || data.first_beyond || data.first_bits;
if (opened) pick(opened.pair, true);
document.body.dataset.ready = 'yes';
</script>
</body>
</html>
)page";

}  // namespace

std::string_view page_template() noexcept {
  return kPage;
}

}  // namespace dbg::compare
