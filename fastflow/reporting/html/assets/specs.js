// Charts as Vega reads them.

const INK = "#1d2733", QUIET = "#566473", GREY = "#c4ccd4";
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

function spec(width, height, rest) {
  return {
    $schema: "https://vega.github.io/schema/vega/v6.json", width, height, padding: 4, autosize: "pad",
    config: {
      axis: { labelFont: FONT, titleFont: FONT, labelColor: INK, titleColor: INK, labelFontSize: 11.5, titleFontSize: 12, titleFontWeight: "normal", gridColor: "#e7ebef", domainColor: "#9aa7b4", tickColor: "#9aa7b4", labelLimit: 150 },
      text: { font: FONT, fontSize: 11.5, fill: INK },
    },
    ...rest,
  };
}

// A scale and its axis for one side of a chart. side: {kind: "linear" | "log" | "names", domain, names, title}
function scaleOf(name, range, side) {
  const isNames = side.kind === "names";
  return { name, range, type: isNames ? "linear" : side.kind, domain: side.domain, zero: false, nice: false };
}

function axisOf(scale, orient, side, room) {
  const axis = { scale, orient, grid: true, title: side.title, labelOverlap: "greedy" };
  if (side.kind === "names") {
    axis.values = side.names.map((_, i) => i);
    if (orient === "left") axis.labelLimit = 200;
    axis.labelOverlap = room / side.names.length < 11 ? "greedy" : false;
    axis.encode = { labels: { update: { text: { signal: `${JSON.stringify(side.names)}[datum.value]` } } } };
    if (orient === "bottom" && side.names.join("").length * 7 > room * 0.75) Object.assign(axis, { labelAngle: -40, labelAlign: "right", labelBaseline: "middle", labelLimit: 110 });
  } else {
    axis.encode = { labels: { update: { text: { signal: "datum.value === 0 ? '0' : abs(datum.value) >= 1e6 || abs(datum.value) < 1e-3 ? format(datum.value, '~e') : format(datum.value, ',~r')" } } } };
    if (side.kind === "log") axis.values = ticksOf(side.domain);
    else axis.tickCount = Math.max(3, Math.round(room / 70)); // beside values of one's own it leaves most of them out
  }
  return axis;
}

// What a drag over a chart chooses, as the signal `box`: [x0, x1, y0, y1] in units of its scales; null for none.
function brushSignals(hasY) {
  const end = "[pointerdown, window:pointerup] > window:pointermove!";
  const y = hasY ? "clamp(down[1], 0, height), clamp(y(), 0, height)" : "0, height";
  return [
    { name: "down", value: null, on: [{ events: "pointerdown", update: "xy()" }] },
    { name: "brush", value: null, on: [{ events: end, update: `[clamp(down[0], 0, width), clamp(x(), 0, width), ${y}]` }, { events: "dblclick", update: "null" }, { events: { signal: "cleared" }, update: "null", force: true }] },
    { name: "cleared", value: 0 },
    { name: "box", update: `brush && (abs(brush[1] - brush[0]) > 3) ? [invert('x', min(brush[0], brush[1])), invert('x', max(brush[0], brush[1])), ${hasY ? "invert('y', max(brush[2], brush[3])), invert('y', min(brush[2], brush[3]))" : "0, 0"}] : null` },
  ];
}

const BRUSH = {
  type: "rect", interactive: false,
  encode: { update: { x: { signal: "brush ? brush[0] : 0" }, x2: { signal: "brush ? brush[1] : 0" }, y: { signal: "brush ? brush[2] : 0" }, y2: { signal: "brush ? brush[3] : 0" }, fill: { value: "#0060a0" }, fillOpacity: { value: 0.12 }, stroke: { value: "#0060a0" }, strokeOpacity: { signal: "brush ? 0.8 : 0" } } },
};

function scatterSpec(width, height, x, y, data, size) {
  const at = { x: { scale: "x", field: "x" }, y: { scale: "y", field: "y" } };
  const dots = (name, more) => ({ type: "symbol", from: { data: name }, clip: true, encode: { update: { ...at, size: { value: size }, ...more } } });
  return spec(width, height, {
    signals: brushSignals(true),
    data: ["off", "on", "front", "reference", "picked"].map((name) => ({ name, values: data[name] ?? [] })),
    scales: [scaleOf("x", "width", x), scaleOf("y", "height", y)],
    axes: [axisOf("x", "bottom", x, width), axisOf("y", "left", y, height)],
    marks: [
      { type: "group", from: { facet: { name: "one", data: "reference", groupby: "name" } }, clip: true, marks: [{ type: "line", from: { data: "one" }, encode: { update: { ...at, stroke: { value: "#222" }, strokeWidth: { value: 1 }, strokeDash: { field: "dash" } } } }] },
      dots("off", { fill: { value: GREY }, fillOpacity: { value: 0.5 } }),
      dots("on", { fill: { field: "c" }, fillOpacity: { signal: "datum.h ? 0 : 0.72" }, stroke: { field: "c" }, strokeWidth: { signal: "datum.h ? 1.4 : 0.4" } }),
      { type: "line", from: { data: "front" }, clip: true, interactive: false, encode: { update: { ...at, stroke: { value: "#111" }, strokeWidth: { value: 1.6 }, strokeDash: { value: [5, 3] } } } },
      dots("picked", { size: { value: 190 }, fill: { value: "transparent" }, stroke: { value: "#000" }, strokeWidth: { value: 2.4 } }),
      BRUSH,
    ],
  });
}

// Bars of all points in grey, and of the chosen ones before them. rows: [{k, all, on, c}]
function barSpec(width, rows) {
  const bar = (field, fill, more = {}) => ({ type: "rect", from: { data: "bars" }, encode: { update: { y: { scale: "y", field: "k" }, height: { scale: "y", band: 1 }, x: { scale: "x", value: 0 }, x2: { scale: "x", field }, fill, cursor: { value: "pointer" }, ...more } } });
  return spec(width, Math.max(rows.length * 20, 30), {
    padding: { left: 4, top: 4, bottom: 4, right: 70 }, // for what is written behind a bar
    data: [{ name: "bars", values: rows }],
    scales: [
      { name: "y", type: "band", domain: rows.map((row) => row.k), range: "height", paddingInner: 0.22 },
      { name: "x", type: "linear", domain: [0, Math.max(1, ...rows.map((row) => row.all))], range: "width", nice: true },
    ],
    axes: [{ scale: "y", orient: "left", ticks: false, domain: false }, { scale: "x", orient: "bottom", tickCount: 4, tickMinStep: 1, grid: true, title: "points", format: ",~r" }],
    marks: [
      bar("all", { value: GREY }), bar("on", { field: "c" }),
      { type: "text", from: { data: "bars" }, interactive: false, encode: { update: { y: { scale: "y", field: "k", band: 0.5 }, x: { scale: "x", field: "all", offset: 4 }, baseline: { value: "middle" }, text: { field: "t" }, fontSize: { value: 10.5 }, fill: { value: QUIET } } } },
    ],
  });
}

// bins: [{a, b, all, on}] along a scale
function histogramSpec(width, height, x, bins) {
  const bar = (field, fill) => ({ type: "rect", from: { data: "bins" }, encode: { update: { x: { scale: "x", field: "a" }, x2: { scale: "x", field: "b", offset: -0.6 }, y: { scale: "y", value: 0 }, y2: { scale: "y", field }, fill: { value: fill } } } });
  return spec(width, height, {
    signals: brushSignals(false),
    data: [{ name: "bins", values: bins }],
    scales: [scaleOf("x", "width", x), { name: "y", type: "linear", domain: [0, Math.max(1, ...bins.map((bin) => bin.all))], range: "height", nice: true }],
    axes: [axisOf("x", "bottom", x, width), { scale: "y", orient: "left", tickCount: 4, tickMinStep: 1, title: "points", format: ",~r" }],
    marks: [{ type: "rect", encode: { update: { width: { signal: "width" }, height: { signal: "height" }, fill: { value: "transparent" } } } }, bar("all", GREY), bar("on", "#0072b2"), BRUSH],
  });
}

// A map of best values. cells: [{r, a, t, fill, ink, marked}]
function mapSpec(cell, rows, across, cells, titles) {
  return spec(across.length * cell.width, rows.length * cell.height, {
    signals: [{ name: "keyed", value: null }],
    data: [{ name: "cells", values: cells }],
    scales: [{ name: "y", type: "band", domain: rows, range: "height", padding: 0.03 }, { name: "x", type: "band", domain: across, range: "width", padding: 0.03 }],
    axes: [{ scale: "y", orient: "left", title: titles[0], ticks: false, domain: false }, { scale: "x", orient: "top", title: titles[1], ticks: false, domain: false, labelAngle: across.join("").length * 7 > across.length * cell.width * 0.9 ? -40 : 0, labelAlign: across.join("").length * 7 > across.length * cell.width * 0.9 ? "left" : "center" }],
    marks: [
      { type: "rect", from: { data: "cells" }, encode: { update: { x: { scale: "x", field: "a" }, y: { scale: "y", field: "r" }, width: { scale: "x", band: 1 }, height: { scale: "y", band: 1 }, fill: { field: "fill" }, cursor: { value: "pointer" }, stroke: { signal: "keyed === datum.key || datum.marked ? '#000' : null" }, strokeWidth: { signal: "keyed === datum.key ? 3.5 : 2" } } } },
      { type: "text", from: { data: "cells" }, interactive: false, encode: { update: { x: { scale: "x", field: "a", band: 0.5 }, y: { scale: "y", field: "r", band: 0.5 }, align: { value: "center" }, baseline: { value: "middle" }, text: { field: "t" }, fill: { field: "ink" }, fontSize: { value: 11 }, fillOpacity: { value: cell.width < 40 ? 0 : 1 }, limit: { value: cell.width - 4 } } } },
    ],
  });
}

// Boxes with labels, placed already. boxes: [{x0, x1, y0, y1, fill, ink, t, tip}] in pixels
function boxSpec(width, height, boxes, gap = 1) {
  return spec(width, height, {
    data: [{ name: "boxes", values: boxes }],
    marks: [
      { type: "rect", from: { data: "boxes" }, encode: { update: { x: { field: "x0" }, x2: { field: "x1" }, y: { field: "y0" }, y2: { field: "y1" }, fill: { field: "fill" }, stroke: { value: "#fff" }, strokeWidth: { value: gap }, description: { field: "tip" } } } },
      { type: "text", from: { data: "boxes" }, interactive: false, encode: { update: { x: { signal: "datum.x0 + 5" }, y: { signal: "(datum.y0 + datum.y1) / 2" }, baseline: { value: "middle" }, text: { signal: "datum.x1 - datum.x0 > 24 && datum.y1 - datum.y0 > 11 ? datum.t : ''" }, limit: { signal: "datum.x1 - datum.x0 - 8" }, fill: { field: "ink" }, fontSize: { value: 11 } } } },
    ],
  });
}

// A die cut by area: parts that share a rectangle. parts: [{name, area, t, fill, ink, tip}]
function dieSpec(width, height, parts) {
  return spec(width, height, {
    data: [{
      name: "die", values: [{ name: "die", parent: null }, ...parts.map((part) => ({ ...part, parent: "die" }))],
      transform: [{ type: "stratify", key: "name", parentKey: "parent" }, { type: "treemap", field: "area", sort: { field: "area", order: "descending" }, round: true, method: "squarify", ratio: 1.2, paddingInner: 2, size: [{ signal: "width" }, { signal: "height" }] }],
    }, { name: "parts", source: "die", transform: [{ type: "filter", expr: "datum.parent !== null" }] }],
    marks: [
      { type: "rect", from: { data: "parts" }, encode: { update: { x: { field: "x0" }, x2: { field: "x1" }, y: { field: "y0" }, y2: { field: "y1" }, fill: { field: "fill" }, description: { field: "tip" } } } },
      { type: "text", from: { data: "parts" }, interactive: false, encode: { update: { x: { signal: "(datum.x0 + datum.x1) / 2" }, y: { signal: "(datum.y0 + datum.y1) / 2" }, align: { value: "center" }, baseline: { value: "middle" }, text: { signal: "datum.x1 - datum.x0 > 40 && datum.y1 - datum.y0 > 13 ? datum.t : ''" }, limit: { signal: "datum.x1 - datum.x0 - 4" }, fill: { field: "ink" } } } },
    ],
  });
}

// A roofline. roofs: [{name, x, y}], dots: [{x, y, c, size, t, tip}]
function rooflineSpec(width, height, x, y, roofs, dots) {
  const at = { x: { scale: "x", field: "x" }, y: { scale: "y", field: "y" } };
  return spec(width, height, {
    data: [{ name: "roofs", values: roofs }, { name: "dots", values: dots }, { name: "ends", source: "roofs", transform: [{ type: "filter", expr: "datum.end" }] }],
    scales: [scaleOf("x", "width", x), scaleOf("y", "height", y)],
    axes: [axisOf("x", "bottom", x, width), axisOf("y", "left", y, height)],
    marks: [
      { type: "group", from: { facet: { name: "one", data: "roofs", groupby: "name" } }, clip: true, marks: [{ type: "line", from: { data: "one" }, encode: { update: { ...at, stroke: { field: "c" }, strokeWidth: { value: 2 } } } }] },
      { type: "text", from: { data: "ends" }, encode: { update: { ...at, text: { field: "t" }, dx: { field: "dx" }, dy: { value: -7 }, align: { field: "align" }, fill: { field: "c" }, fontWeight: { value: "bold" } } } },
      { type: "symbol", from: { data: "dots" }, clip: true, encode: { update: { ...at, size: { field: "size" }, fill: { field: "c" }, fillOpacity: { value: 0.75 }, stroke: { value: "#fff" }, description: { field: "tip" } } } },
    ],
  });
}
