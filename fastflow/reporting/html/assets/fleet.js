// The page of a fleet: charts over time, which are zoomed together, and cumulative curves.

const TALL = 120, LEFT = 58, MARKED = [0.5, 0.9, 0.95, 0.99], LIMIT = "#a63a00";

// What values are written in: the unit of the largest one, as [size, name].
function unitFor(values, unit) {
  const [, most] = extent(values, false);
  return scaleFor(Number.isFinite(most) ? most : 0, unit);
}

const bracketed = (title, name) => (name ? `${title} [${name.replace(/^\//, "1/")}]` : title);

function part(parent, title, isWide) {
  const box = document.createElement("div"), key = document.createElement("p"), chart = document.createElement("div");
  box.className = isWide ? "part wide" : "part";
  key.className = "key";
  box.append(Object.assign(document.createElement("h3"), { textContent: title }), key, chart);
  parent.append(box);
  return { box, key, chart };
}

function fillKey(element, names) {
  element.replaceChildren(...names.map((name, k) => {
    const one = document.createElement("span");
    one.append(Object.assign(document.createElement("i"), { style: `background:${APART[k % APART.length]}` }), name);
    return one;
  }));
}

// An entry of a key that is drawn as a dashed line.
function dashed(name) {
  const one = document.createElement("span");
  one.append(Object.assign(document.createElement("i"), { className: "dash" }), name);
  return one;
}

// Rows of a chart over time: the time, and the lower and the upper end of each series (a0, b0, a1, b1, ...).
function rowsOf(panel, time, size) {
  return panel.time.map((at, i) => {
    const row = { t: at / time };
    let below = 0;
    for (const [k, { values }] of panel.series.entries()) {
      const value = values[i] === null ? NaN : values[i] / size;
      row[`a${k}`] = panel.is_stacked ? below : 0;
      row[`b${k}`] = panel.is_stacked ? (below += value) : value;
    }
    return row;
  });
}

function timelineSpec(width, panel, rows, sides) {
  const mark = (k, more) => ({ clip: true, interactive: false, from: { data: "rows" }, encode: { update: { x: { scale: "x", field: "t" }, y: { scale: "y", field: `b${k}` }, interpolate: { value: panel.is_stepped ? "step-after" : "linear" }, defined: { signal: `isValid(datum.b${k}) && !isNaN(datum.b${k})` }, ...more } } });
  const marks = panel.series.flatMap((_, k) => {
    const colour = { value: APART[k % APART.length] };
    if (panel.is_stacked) return [{ type: "area", ...mark(k, { y2: { scale: "y", field: `a${k}` }, fill: colour, fillOpacity: { value: 0.85 } }) }];
    const dots = panel.has_gaps ? [{ type: "symbol", ...mark(k, { fill: colour, size: { value: 14 }, opacity: { signal: `isNaN(datum.b${k}) ? 0 : 1` } }) }] : [];
    return [{ type: "line", ...mark(k, { stroke: colour, strokeWidth: { value: 1.6 } }) }, ...dots];
  });
  const limit = sides.limit > 0 ? [{ type: "rule", interactive: false, encode: { update: { x: { value: 0 }, x2: { signal: "width" }, y: { scale: "y", value: sides.limit }, stroke: { value: LIMIT }, strokeDash: { value: [5, 3] } } } }] : [];
  const y = axisOf("y", "left", sides.y, TALL);
  return spec(width, TALL, {
    signals: [
      { name: "domain", value: sides.x.domain }, { name: "rule", value: null },
      { name: "pointer", value: null, on: [{ events: "pointermove", update: "invert('x', clamp(x(), 0, width))" }, { events: "pointerout", update: "null" }] },
      ...brushSignals(false),
    ],
    data: [{ name: "rows", values: rows }],
    scales: [{ name: "x", type: "linear", range: "width", domain: { signal: "domain" }, zero: false, nice: false }, { name: "y", type: "linear", range: "height", domain: sides.y.domain, nice: true }],
    axes: [axisOf("x", "bottom", sides.x, width), { ...y, minExtent: LEFT, maxExtent: LEFT, tickCount: 4 }],
    marks: [
      { type: "rect", encode: { update: { width: { signal: "width" }, height: { signal: "height" }, fill: { value: "transparent" } } } },
      ...marks, ...limit,
      { type: "rule", interactive: false, encode: { update: { x: { signal: "rule === null ? 0 : scale('x', rule)" }, y: { value: 0 }, y2: { signal: "height" }, stroke: { value: INK }, strokeOpacity: { signal: "rule === null || rule < domain[0] || rule > domain[1] ? 0 : 0.7" } } } },
      BRUSH,
    ],
  });
}

// Charts over the same time: what is zoomed or pointed at in one of them is so in all.
class Timelines {
  constructor({ panels, until }) {
    this.panels = panels;
    [this.size, this.unit] = scaleFor(until, "s");
    this.until = until / this.size;
    this.domain = [0, this.until];
    this.at = null;
    this.parts = panels.map((panel) => {
      const [size, name] = unitFor(panel.series.flatMap(({ values }) => values.map((value) => value ?? NaN)), panel.unit);
      const one = { ...part(byId("timelines"), bracketed(panel.title, name), true), panel, size, rows: rowsOf(panel, this.size, size) };
      fillKey(one.key, panel.series.map((series) => series.name));
      if (panel.limit > 0) one.key.append(dashed(`limit ${show(panel.limit, panel.unit)}`));
      Object.assign(one.chart, { tabIndex: 0, className: "timeline" });
      one.chart.setAttribute("role", "application");
      one.chart.addEventListener("keydown", (event) => this.key(event, one));
      one.chart.addEventListener("pointermove", (event) => (this.mouse = event));
      return one;
    });
    byId("whole").addEventListener("click", () => this.zoom([0, this.until]));
  }

  async draw() {
    const width = Math.max(byId("timelines").clientWidth - LEFT - 40, 240);
    for (const one of this.parts) {
      const before = one.made, { panel, rows, size } = one, isLast = one === this.parts.at(-1);
      let most = Math.max(1e-9, ...rows.flatMap((row) => panel.series.map((_, k) => row[`b${k}`] || 0)));
      const limit = panel.limit / size < 3 * most ? panel.limit / size : 0; // far above, it would flatten the lines
      most = Math.max(most, limit);
      const sides = { x: { kind: "linear", domain: this.domain, title: isLast ? bracketed("time", this.unit) : "" }, y: { kind: "linear", domain: [0, 1.04 * most], title: "" }, limit };
      one.made = await embed(one.chart, timelineSpec(width, panel, rows, sides));
      before?.finalize();
      const { view } = one.made;
      follow(view, "pointer", (at) => this.point(at, one));
      one.chart.setAttribute("aria-label", this.about(one));
    }
  }

  // Say what a chart shows: mean and largest value of each series.
  about({ panel }) {
    const texts = panel.series.map(({ name, values }) => {
      const known = values.filter((value) => value !== null), mean = known.reduce((sum, value) => sum + value, 0) / known.length;
      return `${name} ${show(mean, panel.unit)} on average, at most ${show(Math.max(...known), panel.unit)}`;
    });
    return `${panel.title}, over time: ${texts.join("; ")}`;
  }

  // The values of a chart at a time.
  told({ panel }, at) {
    let near = 0;
    for (const [i, time] of panel.time.entries()) if (Math.abs(time / this.size - at) < Math.abs(panel.time[near] / this.size - at)) near = i;
    const values = panel.series.map(({ name, values }) => `${name}: ${values[near] === null ? "–" : show(values[near], panel.unit)}`);
    return [`at ${show(panel.time[near], "s")}`, ...values];
  }

  // Point at a time in all charts, and tell the values of one of them.
  point(at, one) {
    this.at = at;
    for (const { made } of this.parts) made.view.signal("rule", at).runAsync();
    const tip = byId("tip");
    tip.hidden = at === null;
    if (at === null) return;
    tip.textContent = this.told(one, at).join("\n");
    const left = Math.min(this.mouse.clientX + 14, innerWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(left, 4)}px`;
    tip.style.top = `${Math.min(this.mouse.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
  }

  zoom([from, to]) {
    const least = this.until / 2000, low = Math.max(from, 0);
    this.domain = [low, Math.min(Math.max(to, low + least), this.until)];
    const isWhole = this.domain[0] === 0 && this.domain[1] === this.until;
    byId("whole").disabled = isWhole;
    byId("span").textContent = isWhole ? "" : `${show(this.domain[0] * this.size, "s")} to ${show(this.domain[1] * this.size, "s")}`;
    for (const { made } of this.parts) made.view.signal("domain", this.domain).runAsync();
  }

  // A mouse let go: what was dragged over is what is seen.
  async release() {
    for (const { made } of this.parts) {
      await made.view.runAsync(); // the last move of the mouse
      if (!made.view.signal("brush")) continue;
      const box = made.view.signal("box");
      await made.view.signal("cleared", Math.random()).runAsync();
      if (box) this.zoom([box[0], box[1]]);
    }
  }

  key(event, one) {
    const [low, high] = this.domain, width = high - low, at = this.at ?? (low + high) / 2;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (step) this.at = Math.min(Math.max(at + (step * width) / (event.shiftKey ? 10 : 100), low), high);
    else if (factor) this.zoom([at - (factor * width) / 2, at + (factor * width) / 2]);
    else if (event.key === "Escape") this.zoom([0, this.until]);
    else return;
    event.preventDefault();
    if (!step) return;
    for (const { made } of this.parts) made.view.signal("rule", this.at).runAsync();
    byId("state").textContent = `${one.panel.title} ${this.told(one, this.at).join(", ")}`;
  }
}

function curveSpec(width, height, x, lines, dots, limit) {
  const at = { x: { scale: "x", field: "x" }, y: { scale: "y", field: "y" } }, y = { kind: "linear", domain: [0, 104], title: "share [%]" }; // room above for the last label
  return spec(width, height, {
    data: [{ name: "lines", values: lines }, { name: "dots", values: dots }, { name: "limit", values: limit }],
    scales: [scaleOf("x", "width", x), scaleOf("y", "height", y)],
    axes: [axisOf("x", "bottom", x, width), axisOf("y", "left", y, height)],
    marks: [
      { type: "group", from: { facet: { name: "one", data: "lines", groupby: "name" } }, clip: true, marks: [{ type: "line", from: { data: "one" }, encode: { update: { ...at, stroke: { field: "c" }, strokeWidth: { value: 1.8 } } } }] },
      { type: "rule", from: { data: "limit" }, encode: { update: { x: { scale: "x", field: "x" }, y: { value: 0 }, y2: { signal: "height" }, stroke: { value: LIMIT }, strokeDash: { value: [5, 3] } } } },
      { type: "text", from: { data: "limit" }, encode: { update: { x: { scale: "x", field: "x", offset: -3 }, y: { signal: "height - 6" }, angle: { value: -90 }, baseline: { value: "bottom" }, text: { field: "t" }, fill: { value: LIMIT } } } },
      { type: "symbol", from: { data: "lines" }, clip: true, encode: { update: { ...at, size: { value: 90 }, fill: { value: "transparent" } } } },
      { type: "symbol", from: { data: "dots" }, encode: { update: { ...at, size: { value: 34 }, fill: { field: "c" }, stroke: { value: "#fff" } } } },
      { type: "text", from: { data: "dots" }, interactive: false, encode: { update: { ...at, dx: { signal: "datum.y > 60 ? -8 : 8" }, dy: { field: "dy" }, align: { signal: "datum.y > 60 ? 'right' : 'left'" }, baseline: { value: "middle" }, text: { field: "t" }, fontSize: { value: 10.5 }, fill: { value: QUIET } } } },
    ],
  });
}

// The value of a curve at a share: the first whose share is as large.
function valueAt({ values, shares }, share) {
  const i = shares.findIndex((one) => one >= share - 1e-9);
  return values[i < 0 ? values.length - 1 : i];
}

class Curves {
  constructor({ times }) {
    this.parts = times.map((time) => ({ time, ...part(byId("curves"), time.title, false) }));
    const groups = [...new Set(times.flatMap(({ curves }) => curves.map((curve) => curve.by)))];
    const words = { "": "all requests", class: "classes of service", turn: "turns of sessions" };
    byId("by").replaceChildren(...groups.map((by) => new Option(words[by], by)));
    byId("groups").hidden = groups.length < 2;
    byId("by").addEventListener("change", () => this.draw());
  }

  async draw() {
    const room = byId("curves").clientWidth, across = room > 1250 && this.parts.length > 3 ? 4 : room > 1000 ? 3 : room > 640 ? 2 : 1;
    const width = Math.max(Math.floor((room - 30 * (across - 1)) / across) - 66, 200), height = 280; // without gaps and the axis
    for (const one of this.parts) {
      const { time } = one, before = one.made;
      const some = time.curves.filter((curve) => curve.by === byId("by").value), curves = some.length ? some : time.curves;
      const all = curves.flatMap((curve) => curve.values), isLog = spansMuch(all), [least, most] = extent(all, isLog);
      const [size, name] = scaleFor(isLog ? Math.sqrt(least * most) : most, "s");
      const isNear = time.limit > 0 && time.limit < 3 * most && (!isLog || time.limit > least / 3);
      let low = isLog ? least : 0, high = most;
      if (isNear) [low, high] = [Math.min(low, time.limit), Math.max(high, time.limit)];
      if (isLog) [low, high] = [low / 1.1, high * 1.1];
      const x = { kind: isLog ? "log" : "linear", domain: [low / size, (high * (isLog ? 1 : 1.04) || 1) / size], title: bracketed("time", name) };
      const lines = [], dots = [];
      for (const [k, curve] of curves.entries()) {
        const c = APART[k % APART.length];
        for (const [i, value] of curve.values.entries()) if (!isLog || value > 0) lines.push({ name: curve.name, c, x: value / size, y: 100 * curve.shares[i], tip: `${digits(100 * curve.shares[i])}% of ${curve.name} within ${show(value, "s")}` });
        for (const share of MARKED) {
          const value = valueAt(curve, share);
          dots.push({ c, x: value / size, y: 100 * share, dy: share > 0.98 ? -7 : share > 0.94 ? -3 : share > 0.6 ? 0 : 5, t: curves.length > 1 ? "" : `${share === 0.5 ? "median" : `${100 * share}%`} ${show(value, "s")}`, tip: `${100 * share}% of ${curve.name} within ${show(value, "s")}` });
        }
      }
      const limit = isNear ? [{ x: time.limit / size, t: `limit ${show(time.limit, "s")}` }] : [];
      one.box.style.width = `${width + 66}px`;
      one.made = await embed(one.chart, curveSpec(width, height, x, lines, dots, limit));
      before?.finalize();
      explainOn(one.made.view, (datum) => datum.tip ?? "");
      fillKey(one.key, curves.length > 1 ? curves.map((curve) => curve.name) : []);
      const texts = curves.map((curve) => `${curve.name}: ${MARKED.map((share) => `${100 * share}% within ${show(valueAt(curve, share), "s")}`).join(", ")}`);
      one.chart.firstElementChild?.setAttribute("aria-label", `${time.title}. ${texts.join("; ")}`);
    }
  }
}

async function start() {
  const fleet = JSON.parse(new TextDecoder().decode(await unpacked("data")));
  UNITS = fleet.units;
  new Function(new TextDecoder().decode(await unpacked("vega")))();
  byId("time").hidden = byId("shares").hidden = false;
  const timelines = new Timelines(fleet), curves = new Curves(fleet);
  await timelines.draw();
  await curves.draw();
  addEventListener("pointerup", () => timelines.release());
  addEventListener("beforeprint", () => (document.querySelector("header details").open = true));
  let width = innerWidth;
  addEventListener("resize", async () => {
    if (Math.abs(innerWidth - width) < 60) return;
    width = innerWidth;
    await timelines.draw();
    await curves.draw();
  });
  document.documentElement.dataset.ready = "yes";
}

start();
