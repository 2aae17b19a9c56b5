// Charts of parts (see parts.h), by Chart.js.
'use strict';

const PALETTE = {
  light: ['#0b62c4', '#c44601', '#11803f', '#a3249b', '#8a6100', '#007f8a', '#c2255c', '#5f3dc4'],
  dark: ['#6cb0ff', '#ff9d5c', '#5fd08f', '#f08be6', '#e6c04d', '#4fd3dd', '#ff8fb1', '#b5a1ff'],
};
const named = new Map();    // the same name has the same colour everywhere
const classes = new Map();  // of memory

function theme() {
  return document.documentElement.dataset.theme === 'dark' ? 'dark' : 'light';
}

function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function colour(name, alpha = 1, among = named) {
  if (!among.has(name)) among.set(name, among.size);
  const all = PALETTE[theme()];
  const hex = all[among.get(name) % all.length];
  return hex + Math.round(alpha * 255).toString(16).padStart(2, '0');
}

function short(value) {
  if (value === null || value === undefined || !isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size >= 1e4) return Math.round(value).toLocaleString('en');
  if (size !== 0 && size < 1e-3) return value.toExponential(1).replace('.0e', 'e');
  return String(Number(value.toPrecision(4)));
}

function axis(title, more = {}) {
  return {
    title: {display: Boolean(title), text: title, color: style('--soft')},
    grid: {color: style('--line')},
    ticks: {color: style('--soft'), maxRotation: 0, callback: short},
    ...more,
  };
}

// Only powers of ten, and twos and fives where there is room.
function log_axis(title) {
  const out = axis(title, {type: 'logarithmic'});
  out.ticks.callback = (value) => {
    const lead = Number(value.toExponential(1)[0]);
    return lead === 1 || lead === 2 || lead === 5 ? short(value) : '';
  };
  out.ticks.autoSkip = true;
  return out;
}

function legend_labels() {
  return {color: style('--ink'), boxWidth: 8, boxHeight: 8, usePointStyle: true};
}

function options(more) {
  return {
    animation: false, maintainAspectRatio: false, responsive: true,
    interaction: {mode: 'nearest', intersect: false},
    ...more,
    plugins: {
      legend: {labels: legend_labels()},
      ...more.plugins,
    },
  };
}

function missed(bar) {
  const misses = bar.samples.filter((sample) => sample === null).length;
  return misses < bar.samples.length ? `missed by ${misses} of ${bar.samples.length} seeds` : 'missed';
}

// A median's mark, its interval, and the single values as dots.
const whiskers = {
  id: 'whiskers',
  afterDatasetsDraw(chart) {
    const bars = chart.options.plugins.whiskers && chart.options.plugins.whiskers.bars;
    if (!bars) return;
    const g = chart.ctx, x = chart.scales.x;
    g.save();
    g.lineWidth = 2;
    bars.forEach((bar, i) => {
      const y = chart.getDatasetMeta(0).data[i].y;
      const dots = bar.samples.filter((sample) => sample !== null).map((sample) => x.getPixelForValue(sample));
      g.strokeStyle = g.fillStyle = style('--ink');
      const line = (x0, y0, x1, y1) => { g.beginPath(); g.moveTo(x0, y0); g.lineTo(x1, y1); g.stroke(); };
      if (bar.middle === null) {
        g.fillText(missed(bar), Math.max(chart.chartArea.left, ...dots) + 8, y + 4);
      } else {
        const low = x.getPixelForValue(bar.low === null ? bar.middle : bar.low);
        const high = bar.high === null ? chart.chartArea.right : x.getPixelForValue(bar.high);
        line(low, y, high, y);
        line(low, y - 4, low, y + 4);
        if (bar.high !== null) line(high, y - 4, high, y + 4);
        const middle = x.getPixelForValue(bar.middle);
        g.lineWidth = 3;
        line(middle, y - 8, middle, y + 8);
        g.lineWidth = 2;
      }
      g.fillStyle = colour(bar.name);
      for (const dot of dots) {
        g.beginPath();
        g.arc(dot, y, 3, 0, 2 * Math.PI);
        g.fill();
      }
    });
    g.restore();
  },
};

function intervals(part) {
  const unit = part.unit ? ' ' + part.unit : '';
  const range = (b) => part.zero ? b.middle : b.middle === null ? null :
    [b.low === null ? b.middle : b.low, b.high === null ? b.middle : b.high];
  const all = part.bars.flatMap((b) => [b.low, b.high, ...b.samples]).filter((v) => v !== null);
  const ends = all.length ? {suggestedMin: Math.min(...all), suggestedMax: Math.max(...all)} : {};
  return {
    type: 'bar', height: 60 + 34 * part.bars.length, plugins: [whiskers],
    data: {
      labels: part.bars.map((b) => b.name),
      datasets: [{
        data: part.bars.map(range), backgroundColor: part.bars.map((b) => colour(b.name, 0.3)),
        borderWidth: 0, borderSkipped: false, barPercentage: 0.6,
      }],
    },
    options: options({
      indexAxis: 'y', interaction: {mode: 'nearest', axis: 'y', intersect: false},
      scales: {
        x: axis(part.unit === 's' ? 'seconds' : part.unit, {beginAtZero: part.zero, grace: '5%', ...ends}),
        y: axis('', {ticks: {color: style('--ink')}, grid: {display: false}}),
      },
      plugins: {
        legend: {display: false}, whiskers: {bars: part.bars},
        tooltip: {callbacks: {label: (item) => {
          const b = part.bars[item.dataIndex];
          const runs = b.samples.length ? `, ${b.samples.length} seeds` : '';
          if (b.middle === null) return missed(b);
          return `${short(b.middle)}${unit}, between ${short(b.low)} and ` +
            (b.high === null ? 'a miss' : short(b.high)) + runs;
        }}},
      },
    }),
  };
}

function curves(part) {
  const sets = [];
  for (const c of part.curves) {
    const line = (values) => c.x.map((x, i) => ({x, y: values[i]}));
    const plain = {pointRadius: 0, borderWidth: 0, tension: 0, parsing: false, curve: c.name};
    if (c.low.length) {
      sets.push({...plain, data: line(c.low), band: true, fill: false});
      sets.push({...plain, data: line(c.high), band: true, fill: '-1', backgroundColor: colour(c.name, 0.16)});
    }
    sets.push({
      ...plain, label: c.name, data: line(c.middle), borderColor: colour(c.name), borderWidth: 2,
      pointRadius: c.x.length > 12 ? 0 : 3, pointHoverRadius: 4, backgroundColor: colour(c.name), fill: false,
      low: c.low, high: c.high,
    });
  }
  return {
    type: 'line', height: 320,
    data: {datasets: sets},
    options: options({
      scales: {x: part.log_x ? log_axis(part.x) : axis(part.x, {type: 'linear'}), y: axis(part.y)},
      interaction: {mode: 'nearest', axis: 'xy', intersect: false},
      plugins: {
        legend: {
          labels: {...legend_labels(), filter: (item, data) => !data.datasets[item.datasetIndex].band},
          onClick: (event, item, legend) => {
            const chart = legend.chart, name = chart.data.datasets[item.datasetIndex].curve;
            const shown = chart.isDatasetVisible(item.datasetIndex);
            chart.data.datasets.forEach((d, i) => { if (d.curve === name) chart.setDatasetVisibility(i, !shown); });
            chart.update();
          },
        },
        tooltip: {
          filter: (item) => !item.dataset.band,
          callbacks: {
            title: (items) => items.length ? `${part.x.split(',')[0]} ${short(items[0].parsed.x)}` : '',
            label: (item) => {
              const d = item.dataset, i = item.dataIndex;
              const band = d.low.length ? ` (${short(d.low[i])} – ${short(d.high[i])})` : '';
              return `${d.label}: ${short(item.parsed.y)}${band}`;
            },
          },
        },
      },
    }),
  };
}

function stacked(part) {
  return {
    type: 'bar', height: 90 + 28 * part.labels.length,
    data: {
      labels: part.labels,
      datasets: part.series.map((s) => ({label: s.name, data: s.values, backgroundColor: colour(s.name, 0.85, classes)})),
    },
    options: options({
      indexAxis: 'y', interaction: {mode: 'index', axis: 'y', intersect: false},
      scales: {
        x: axis(part.unit, {stacked: true}),
        y: axis('', {stacked: true, grid: {display: false}, ticks: {color: style('--ink'), autoSkip: false}}),
      },
      plugins: {tooltip: {callbacks: {
        label: (item) => `${item.dataset.label}: ${short(item.parsed.x)} ${part.unit}`,
        footer: (items) => `all: ${short(items.reduce((sum, i) => sum + i.parsed.x, 0))} ${part.unit}`,
      }}},
    }),
  };
}

function roofline(part) {
  const roof = part.points.map((p) => ({x: p.mb, y: p.roof_ms})).sort((a, b) => a.x - b.x);
  const groups = [...new Set(part.points.map((p) => p.group))];
  const sets = groups.map((g) => {
    const mine = part.points.filter((p) => p.group === g);
    return {
      label: g || 'steps', data: mine.map((p) => ({x: p.mb, y: p.ms})), points: mine, parsing: false,
      backgroundColor: colour(g), pointRadius: 4, pointHoverRadius: 6, showLine: false,
    };
  });
  sets.push({
    label: 'a copy of as many bytes', data: roof, type: 'line', parsing: false, borderColor: style('--soft'),
    backgroundColor: style('--soft'), borderDash: [5, 4], borderWidth: 1.5, pointRadius: new Set(roof.map((p) => p.x)).size > 1 ? 0 : 4, pointStyle: 'rectRot',
  });
  return {
    type: 'scatter', height: 340,
    data: {datasets: sets},
    options: options({
      scales: {x: log_axis('MB moved by a step'), y: log_axis('ms')},
      plugins: {tooltip: {callbacks: {label: (item) => {
        const p = item.dataset.points && item.dataset.points[item.dataIndex];
        if (!p) return `a copy: ${short(item.parsed.y)} ms`;
        return `${p.name || p.group}: ${short(p.ms)} ms, ${Math.round(100 * p.roof_ms / p.ms)} % of a copy's speed`;
      }}}},
    }),
  };
}

const CHARTS = {intervals, curves, stacked, roofline};
