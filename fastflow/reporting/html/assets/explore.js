// The linked charts: what is chosen in one of them is seen in all.

const JITTER = 0.22; // of points with the same choice, to either side
const MOST_PANELS = 12;
const BINS = 36;

// A side of a chart: the scale of a column, and the place of every row on it (NaN for none). Choices run
// downwards where the side is an upright one.
function sideOf(column, isLog, isUpwards = false) {
  if (!column.isNumber) {
    const { names, codes } = column.levels, shown = names.slice(0, MOST_LEVELS);
    const at = Float64Array.from(codes, (code, i) => (code < shown.length ? code + JITTER * (2 * (((i * 0.618) % 1)) - 1) : NaN));
    return { kind: "names", names: shown, domain: isUpwards ? [shown.length - 0.5, -0.5] : [-0.5, shown.length - 0.5], title: column.title, at, codes, size: 1, unit: "", left: names.length - shown.length };
  }
  const [least, most] = extent(column.values, isLog);
  const [size, unit] = scaleFor(Math.max(Math.abs(least), Math.abs(most)) * (isLog ? Math.sqrt(Math.max(least, 1e-300) / most) : 1), column.unit);
  const bare = column.name.endsWith("_per_s") ? column.name : column.name.replace(/_(s|B|J|W|V|Hz|Bps)$/, ""); // time_s in ms is "time [ms]"
  const title = unit ? `${bare} [${unit.replace(/^\//, "1/")}]` : column.name;
  const at = Float64Array.from(column.values, (value) => (isLog && !(value > 0) ? NaN : value / size));
  if (!(most >= least)) return { kind: "linear", domain: [0, 1], title, at, size, unit, left: 0 };
  const pad = isLog ? (most / least) ** 0.04 || 1 : 0.04 * (most - least);
  let domain = isLog ? [least / pad / size, most * pad / size] : [(least - pad) / size, (most + pad) / size];
  if (!(domain[1] > domain[0])) domain = isLog ? [domain[0] / 2, domain[1] * 2] : [domain[0] - Math.max(1e-9, Math.abs(domain[0]) * 0.1), domain[1] + Math.max(1e-9, Math.abs(domain[1]) * 0.1)];
  if (!isLog && least >= 0 && least < 0.5 * most) domain[0] = 0;
  return { kind: isLog ? "log" : "linear", domain, title, at, size, unit, left: 0 };
}

// A range of a side, in the units of its axis: whether a row lies in it, and what that is called. An end that is
// missing is infinite; where both are, every row is taken. Values are compared as they are held, in single precision.
function rangeOf(column, side, ...ends) {
  const [low, high] = ends.sort((a, b) => a - b);
  if (low === -Infinity && high === Infinity) return { takes: () => true, told: "" };
  if (side.kind === "names") {
    const is = (code) => code >= Math.round(low) && code <= Math.round(high) && code < side.names.length;
    return { takes: (i) => is(side.codes[i]), told: `${column.name} ${side.names.filter((_, code) => is(code)).join(", ")}` };
  }
  const [from, to] = [low, high].map((end) => Math.fround(end * side.size)), [least, most] = [low, high].map((end) => show(end * side.size, column.unit));
  const told = low === -Infinity ? `${column.name} up to ${most}` : high === Infinity ? `${column.name} from ${least}` : `${column.name} ${least} to ${most}`;
  return { takes: (i) => column.values[i] >= from && column.values[i] <= to, told };
}

// The state of the page: points, what the charts show, filters, and what they leave.
class Explorer {
  constructor(points) {
    this.points = points;
    this.filters = new Map();
    this.chosen = new Uint8Array(points.rows).fill(1);
    this.picked = -1;
    this.listeners = [];
    const feasible = points.columns.get("feasible");
    this.fits = Uint8Array.from({ length: points.rows }, (_, i) => (feasible && feasible.text(i) !== "yes" ? 0 : 1));
    this.anyFits = this.fits.includes(1);
  }

  column(name) {
    return this.points.columns.get(name);
  }

  weight(i) {
    return this.points.weight ? this.points.weight[i] : 1;
  }

  // Set a filter: a label, and a function that says whether a row stays; null removes it.
  filter(key, label, keeps) {
    if (keeps === null) this.filters.delete(key);
    else {
      const mask = new Uint8Array(this.points.rows);
      for (let i = 0; i < mask.length; i++) mask[i] = keeps(i) ? 1 : 0;
      this.filters.set(key, { label, mask });
    }
    this.choose();
  }

  clear() {
    this.filters.clear();
    this.choose();
  }

  choose() {
    this.chosen.set(this.chosenBut(""));
    this.tell();
  }

  // The rows that all filters leave but one.
  chosenBut(key) {
    const chosen = new Uint8Array(this.points.rows).fill(1);
    for (const [other, { mask }] of this.filters) if (other !== key) for (let i = 0; i < mask.length; i++) chosen[i] &= mask[i];
    return chosen;
  }

  pick(i) {
    this.picked = i;
    this.tell();
  }

  tell() {
    for (const listener of this.listeners) listener();
  }

  // What a row says of columns, those left out that it has nothing in: [[name, text]].
  texts(i, names) {
    return names.map((name) => [name, this.column(name)?.text(i)]).filter(([, text]) => text && text !== "–");
  }

  name(i) {
    return this.texts(i, this.points.view.named).map(([name, text]) => `${name} ${text}`).join(", ");
  }

  about(i, more = []) {
    const names = [...new Set([...this.points.view.named, ...more, "reason"])];
    return this.texts(i, names).map(([name, text]) => `${name}: ${text}`).join("\n");
  }

  // Whether every point of fronts of an axis is drawn, as what is better of it is as it was taken to be.
  isWhole(id) {
    const { name, better } = this.column(byId(id).value);
    return this.points.fronts.has(name) && byId(`better${id}`).value === better;
  }
}

// Wipe what is drawn of a brush. Where that leaves a choice, the chart is told to keep it.
function wipe(chart, view) {
  if (!view.signal("brush")) return;
  if (view.signal("box")) chart.silent++;
  view.signal("cleared", Math.random()).runAsync();
}

class Scatter {
  constructor(explorer) {
    this.explorer = explorer;
    this.element = byId("scatter");
    this.panels = [];
    this.silent = 0; // brushes that are wiped without leaving their choice
    this.element.addEventListener("keydown", (event) => this.pressed(event));
  }

  setting() {
    const column = (id) => this.explorer.column(byId(id).value);
    return { x: column("x"), y: column("y"), colour: column("colour"), facet: column("facet"), logX: byId("logx").checked, logY: byId("logy").checked };
  }

  colours(column) {
    const rows = this.explorer.points.rows;
    if (!column) return { at: () => APART[0], legend: [] };
    if (!column.isNumber || (column.isChoice && column.levels.names.length <= APART.length)) {
      const { names, codes } = column.levels, colours = coloursOf(column.levels);
      return { at: (i) => (codes[i] < 0 ? OTHERS : colours[codes[i]]), names, codes, colours };
    }
    const isLog = spansMuch(column.values), [least, most] = extent(column.values, isLog);
    const share = (value) => (most > least ? (isLog ? Math.log(value / least) / Math.log(most / least) : (value - least) / (most - least)) : 0.5);
    return { at: (i) => (Number.isNaN(column.values[i]) ? OTHERS : ramp(share(column.values[i]))), least, most, rows };
  }

  async draw() {
    const { x, y, colour, facet, logX, logY } = this.setting(), { rows, view } = this.explorer.points;
    [this.x, this.y] = [sideOf(x, logX), sideOf(y, logY, true)];
    this.paint = this.colours(colour);
    const facets = facet ? facet.levels : null, counts = new Map();
    if (facets) for (const code of facets.codes) counts.set(code, (counts.get(code) ?? 0) + 1);
    const shown = facets ? facets.names.map((_, code) => code).filter((code) => counts.has(code)).slice(0, MOST_PANELS) : [-1];
    const room = Math.max(this.element.clientWidth, 320), across = Math.min(shown.length, room > 900 ? 4 : room > 560 ? 3 : 1);
    const margin = this.y.kind === "names" ? Math.min(60 + 7 * Math.max(...this.y.names.map((name) => name.length)), 245) : 78;
    const width = Math.max(Math.floor(room / across) - margin - 12, 110), height = facets ? Math.max(Math.min(width * 0.8, 260), 150) : this.y.kind === "names" ? Math.min(Math.max(this.y.names.length * 17, 260), 620) : 430;
    const place = new Map(shown.map((code, k) => [code, k])), members = shown.map(() => []);
    let lost = 0, beside = 0;
    for (let i = 0; i < rows; i++) {
      const k = facets ? place.get(facets.codes[i]) : 0;
      if (Number.isNaN(this.x.at[i]) || Number.isNaN(this.y.at[i])) lost++;
      else if (k === undefined) beside++;
      else members[k].push(i);
    }
    this.members = members;
    const elements = shown.map((code) => {
      const panel = document.createElement("div");
      panel.className = "panel";
      if (facets) panel.append(Object.assign(document.createElement("h3"), { textContent: `${facet.name} ${facets.names[code]}` }));
      panel.append(document.createElement("div"));
      return panel;
    });
    const before = this.panels;
    this.element.replaceChildren(...elements);
    this.panels = await Promise.all(shown.map(async (code, k) => {
      const size = members[k].length > 3000 ? 14 : members[k].length > 600 ? 26 : 46;
      const made = await embed(elements[k].lastChild, scatterSpec(width, height, this.x, this.y, { ...this.split(k), reference: this.reference(view) }, size), "canvas");
      follow(made.view, "box", (box) => this.brushed(k, code, box));
      made.view.addEventListener("click", (_, item) => item && item.datum && item.datum.i !== undefined && this.explorer.pick(item.datum.i));
      explainOn(made.view, (datum) => (datum.i === undefined ? "" : this.explorer.about(datum.i, [x.name, y.name, colour ? colour.name : ""])));
      return made;
    }));
    for (const made of before) made.finalize();
    this.element.setAttribute("aria-label", `Points: ${y.title} over ${x.title}${colour ? `, colours by ${colour.name}` : ""}. Drag to choose; arrow keys move from point to point.`);
    const left = this.explorer.anyFits && this.explorer.fits.includes(0) ? ["Hollow points are not feasible"] : this.explorer.anyFits ? [] : ["None of these points is feasible"];
    if (lost) left.push(`${lost.toLocaleString("en")} points have no place on these axes`);
    if (beside) left.push(`the first ${shown.length} values of ${facet.name} have a panel; ${beside.toLocaleString("en")} points have none`);
    for (const [side, column] of [[this.x, x], [this.y, y]]) if (side.left) left.push(`${column.name} has ${side.left} further values`);
    byId("undrawn").textContent = left.length ? `${left.join("; ")}.` : "";
    for (const [id, side] of [["x", this.x], ["y", this.y]]) {
      byId(`${id}unit`).textContent = side.unit;
      for (const end of ["0", "1"]) byId(id + end).disabled = side.kind === "names";
    }
    this.legend(colour);
    this.caution();
  }

  // Of a large dataset, say where the front of the drawn points may not be that of all.
  caution() {
    const { points, filters } = this.explorer, isWhole = ["x", "y"].every((id) => this.explorer.isWhole(id));
    const has = points.weight && byId("front").checked && this.x.kind !== "names" && this.y.kind !== "names" && (!isWhole || filters.size);
    byId("caution").textContent = has ? "The front is of the drawn points: others, which are not drawn, may be better." : "";
  }

  // The points of a panel, those that are chosen and the others, and the front of the chosen ones.
  split(k) {
    const { chosen, fits, picked } = this.explorer, on = [], off = [], kept = [];
    for (const i of this.members[k]) {
      const row = { i, x: this.x.at[i], y: this.y.at[i] };
      if (chosen[i]) {
        on.push({ ...row, c: this.paint.at(i), h: this.explorer.anyFits && !fits[i] });
        if (fits[i] || !this.explorer.anyFits) kept.push(i);
      } else off.push(row);
    }
    const mark = picked >= 0 && this.members[k].includes(picked) ? [{ i: picked, x: this.x.at[picked], y: this.y.at[picked] }] : [];
    return { on, off, front: byId("front").checked ? this.front(kept) : [], picked: mark };
  }

  front(rows) {
    if (this.x.kind === "names" || this.y.kind === "names") return [];
    const [signX, signY] = ["betterx", "bettery"].map((id) => (byId(id).value === "less" ? 1 : -1));
    const order = rows.slice().sort((a, b) => signX * (this.x.at[a] - this.x.at[b]) || signY * (this.y.at[a] - this.y.at[b]));
    let least = Infinity;
    return order.filter((i) => signY * this.y.at[i] < least && ((least = signY * this.y.at[i]), true)).map((i) => ({ i, x: this.x.at[i], y: this.y.at[i] }));
  }

  // The diagonal of a chart of the same quantity on both sides, and 20% to either side of it.
  reference(view) {
    const { x, y } = this.setting();
    if (!view.diagonal || x.unit !== y.unit || x.name === y.name || this.x.kind === "names" || this.y.kind === "names") return [];
    const [low, high] = this.x.domain, ratio = this.x.size / this.y.size, steps = Array.from({ length: 33 }, (_, k) => low + ((high - low) * k) / 32);
    return [[1, []], [1.2, [2, 3]], [1 / 1.2, [2, 3]]].flatMap(([factor, dash]) => steps.map((at) => ({ name: String(factor), x: at, y: at * factor * ratio, dash })));
  }

  async refresh() {
    await Promise.all(this.panels.map(({ view }, k) => {
      for (const [name, rows] of Object.entries(this.split(k))) view.data(name, rows);
      return view.runAsync();
    }));
    this.press();
    this.caution();
  }

  // What a choice by a box is called: a box on other axes is another choice.
  get key() {
    const { x, y } = this.setting();
    return `box ${x.name} ${y.name}`;
  }

  brushed(k, code, box) {
    const { x, y, facet } = this.setting();
    if (box === null) return void (this.silent > 0 ? this.silent-- : this.explorer.filter(this.key, "", null));
    this.unbrush(k);
    this.choose(x, y, box, code < 0 ? null : { facet, code });
  }

  // Choose the points in a box [x0, x1, y0, y1], and of one panel where there are several.
  choose(x, y, [x0, x1, y0, y1], panel = null) {
    const ofX = rangeOf(x, this.x, x0, x1), ofY = rangeOf(y, this.y, y0, y1), codes = panel && panel.facet.levels.codes;
    const label = [ofX.told, ofY.told, panel ? `${panel.facet.name} ${panel.facet.levels.names[panel.code]}` : ""].filter(Boolean).join("; ");
    this.explorer.filter(this.key, label, label ? (i) => ofX.takes(i) && ofY.takes(i) && (!panel || codes[i] === panel.code) : null);
  }

  // Wipe what is drawn of brushes, but of one panel's.
  unbrush(but = -1) {
    for (const [k, { view }] of this.panels.entries()) if (k !== but) wipe(this, view);
  }

  pressed(event) {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const isX = event.key === "ArrowRight" || event.key === "ArrowLeft", along = isX ? this.x.at : this.y.at;
    const sign = !isX && this.y.kind === "names" ? -step : step; // choices run downwards
    const order = this.members.flat().filter((i) => this.explorer.chosen[i]).sort((a, b) => along[a] - along[b] || a - b);
    if (!order.length) return;
    const at = order.indexOf(this.explorer.picked);
    this.explorer.pick(order[at < 0 ? 0 : Math.min(Math.max(at + sign, 0), order.length - 1)]);
  }

  legend(column) {
    const box = byId("legend"), { names, codes, colours } = this.paint;
    if (!column) return box.replaceChildren();
    if (!names) {
      const bar = document.createElement("span");
      bar.className = "ramp";
      bar.style.background = `linear-gradient(to right, ${RAMP.map((_, k) => ramp(k / (RAMP.length - 1))).join(", ")})`;
      return box.replaceChildren(`${column.name}: ${show(this.paint.least, column.unit)}`, bar, show(this.paint.most, column.unit));
    }
    const there = new Set(codes);
    const buttons = names.map((name, code) => [name, code]).filter(([, code]) => there.has(code)).slice(0, 24).map(([name, code]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.code = code;
      button.append(Object.assign(document.createElement("i"), { style: `background:${colours[code]}` }), name);
      button.addEventListener("click", () => toggle(this.explorer, column, code));
      return button;
    });
    const rest = there.size > 24 ? [`and ${there.size - 24} others`] : [];
    box.replaceChildren(`${column.name}: `, ...buttons, ...rest);
    this.press();
  }

  // Show which choices are taken.
  press() {
    const { colour } = this.setting(), taken = colour && this.explorer.filters.get(`choice ${colour.name}`)?.codes;
    for (const button of byId("legend").querySelectorAll("button")) button.setAttribute("aria-pressed", String(Boolean(taken && taken.has(Number(button.dataset.code)))));
  }
}

// Take a choice of a column, or leave it.
function toggle(explorer, column, code) {
  const key = `choice ${column.name}`, codes = new Set(explorer.filters.get(key)?.codes);
  if (!codes.delete(code)) codes.add(code);
  const { names, codes: of } = column.levels;
  if (!codes.size) return explorer.filter(key, "", null);
  explorer.filter(key, `${column.name} ${[...codes].map((one) => names[one]).join(", ")}`, (i) => codes.has(of[i]));
  explorer.filters.get(key).codes = codes;
  explorer.tell();
}

const MOST_BARS = 16;

class Bars {
  constructor(explorer) {
    this.explorer = explorer;
    this.element = byId("barchart");
  }

  counts() {
    const column = this.explorer.column(byId("bars").value), { names, codes } = column.levels, colours = coloursOf(column.levels);
    const all = new Float64Array(names.length), on = new Float64Array(names.length);
    for (let i = 0; i < codes.length; i++) {
      if (codes[i] < 0) continue;
      all[codes[i]] += this.explorer.weight(i);
      if (this.explorer.chosen[i]) on[codes[i]] += this.explorer.weight(i);
    }
    const round = (value) => Math.round(value).toLocaleString("en");
    const rows = names.map((k, code) => ({ k, code, all: all[code], on: on[code], c: colours[code], t: on[code] < all[code] ? `${round(on[code])} of ${round(all[code])}` : round(all[code]) }));
    const common = rows.filter((row) => row.all).sort((a, b) => b.all - a.all).slice(0, MOST_BARS);
    return column.isNumber ? common.sort((a, b) => a.code - b.code) : common;
  }

  async draw() {
    const rows = this.counts(), before = this.made;
    const letters = Math.max(...rows.map((row) => row.k.length)), room = this.element.clientWidth || 360;
    this.made = await embed(this.element, barSpec(Math.max(room - Math.min(8 + 7 * letters, 160) - 85, 80), rows));
    const there = new Set(this.explorer.column(byId("bars").value).levels.codes);
    byId("barsaid").textContent = there.size > MOST_BARS ? `The ${MOST_BARS} most common of ${there.size} values.` : "";
    before?.finalize();
    this.made.view.addEventListener("click", (_, item) => item?.datum?.code !== undefined && toggle(this.explorer, this.explorer.column(byId("bars").value), item.datum.code));
    explainOn(this.made.view, (datum) => (datum.k === undefined ? "" : `${datum.k}: ${datum.t} points`));
    this.element.firstElementChild?.setAttribute("aria-label", `Points by ${byId("bars").value}: ${rows.map((row) => `${row.k} ${row.t}`).join(", ")}`);
  }

  async refresh() {
    await this.made.view.data("bars", this.counts()).runAsync();
  }
}

class Histogram {
  constructor(explorer) {
    this.explorer = explorer;
    this.element = byId("histchart");
    this.silent = 0;
  }

  get key() {
    return `range ${byId("histogram").value}`;
  }

  // Choose a range [low, high] in the units of the chart.
  choose([low, high]) {
    const { takes, told } = rangeOf(this.explorer.column(byId("histogram").value), this.side, low, high);
    this.explorer.filter(this.key, told, told ? takes : null);
  }

  bins() {
    const side = this.side, isLog = side.kind === "log", [low, high] = side.domain.map((end) => (isLog ? Math.log(end) : end));
    const edge = (k) => (isLog ? Math.exp(low + ((high - low) * k) / BINS) : low + ((high - low) * k) / BINS);
    const bins = Array.from({ length: BINS }, (_, k) => ({ a: edge(k), b: edge(k + 1), all: 0, on: 0 }));
    for (let i = 0; i < side.at.length; i++) {
      const value = isLog ? Math.log(side.at[i]) : side.at[i];
      if (Number.isNaN(value)) continue;
      const bin = bins[Math.min(Math.max(Math.floor(((value - low) / (high - low)) * BINS), 0), BINS - 1)];
      bin.all += this.explorer.weight(i);
      if (this.explorer.chosen[i]) bin.on += this.explorer.weight(i);
    }
    return bins;
  }

  async draw() {
    const column = this.explorer.column(byId("histogram").value), before = this.made;
    this.side = sideOf(column, spansMuch(column.values));
    this.made = await embed(this.element, histogramSpec(Math.max((this.element.clientWidth || 360) - 90, 120), 130, this.side, this.bins()));
    before?.finalize();
    follow(this.made.view, "box", (box) => {
      if (box !== null) this.choose(box);
      else if (this.silent > 0) this.silent--;
      else this.explorer.filter(this.key, "", null);
    });
    byId("hunit").textContent = this.side.unit;
    const range = `${show(side0(this.side), column.unit)} to ${show(side1(this.side), column.unit)}`;
    this.element.firstElementChild?.setAttribute("aria-label", `Values of ${column.name}, ${range}; drag to choose a range`);
  }

  async refresh() {
    await this.made.view.data("bins", this.bins()).runAsync();
  }

  unbrush() {
    wipe(this, this.made.view);
  }
}

const side0 = (side) => side.domain[0] * side.size;
const side1 = (side) => side.domain[1] * side.size;

// The best value of y for every pair of values of two choices.
class BestMap {
  constructor(explorer) {
    this.explorer = explorer;
    this.element = byId("mapchart");
    this.cursor = [0, 0];
    this.element.addEventListener("keydown", (event) => this.key(event));
  }

  setting() {
    return { rows: this.explorer.column(byId("rows").value), across: this.explorer.column(byId("across").value), y: this.explorer.column(byId("y").value) };
  }

  cells() {
    const { rows, across, y } = this.setting(), { fits, anyFits } = this.explorer, best = new Map();
    const chosen = this.explorer.chosenBut("cell"); // so that the other cells stay to be compared
    const less = byId("bettery").value === "less", of = rows.levels, over = across.levels, width = over.names.length;
    for (let i = 0; i < chosen.length; i++) {
      const value = y.isNumber ? y.values[i] : NaN;
      if (!chosen[i] || (anyFits && !fits[i]) || Number.isNaN(value) || of.codes[i] < 0 || over.codes[i] < 0) continue;
      const key = of.codes[i] * width + over.codes[i], held = best.get(key);
      if (held === undefined || (less ? value < y.values[held] : value > y.values[held])) best.set(key, i);
    }
    const values = [...best.values()].map((i) => y.values[i]), isLog = spansMuch(values), [least, most] = extent(values, isLog);
    const share = (value) => (most > least ? (isLog ? Math.log(value / least) / Math.log(most / least) : (value - least) / (most - least)) : 0.5);
    const taken = this.explorer.filters.get("cell")?.cell;
    return of.names.flatMap((r, code) => over.names.map((a, other) => {
      const key = code * width + other, i = best.get(key);
      if (i === undefined) return { key, r, a, code, other, t: "–", fill: "#eef1f4", ink: QUIET, marked: key === taken };
      const at = less ? 1 - share(y.values[i]) : share(y.values[i]);
      return { key, i, r, a, code, other, t: show(y.values[i], y.unit), fill: ramp(at), ink: inkOn(at), marked: key === taken };
    }));
  }

  async draw() {
    if (byId("map").hidden) return;
    const { rows, across, y } = this.setting(), before = this.made;
    const lacks = rows === across ? "Choose two different columns." : y.isNumber ? "" : `${y.name} is no number.`;
    this.element.hidden = Boolean(lacks);
    byId("mapsaid").textContent = lacks;
    if (lacks) return;
    this.cursor = [0, 0];
    const room = Math.max(this.element.clientWidth, 320) - 150, width = Math.min(Math.max(Math.floor(room / across.levels.names.length), 22), 92);
    this.made = await embed(this.element, mapSpec({ width, height: 26 }, rows.levels.names, across.levels.names, this.cells(), [rows.name, across.name]));
    before?.finalize();
    this.made.view.addEventListener("click", (_, item) => item?.datum?.key !== undefined && this.take(item.datum));
    explainOn(this.made.view, (datum) => (datum.key === undefined ? "" : datum.i === undefined ? `${datum.r}, ${datum.a}: no point` : `best of ${rows.name} ${datum.r} and ${across.name} ${datum.a}\n${this.explorer.about(datum.i, [y.name])}`));
    this.caution();
    this.element.setAttribute("aria-label", `Best ${y.name} by ${rows.name} and ${across.name}; arrow keys move from cell to cell, Enter chooses its points`);
  }

  // Choose the points of a cell and open the best one; the same cell again leaves it.
  take({ key, i, code, other, r, a }) {
    const { rows, across } = this.setting(), of = rows.levels.codes, over = across.levels.codes;
    if (this.explorer.filters.get("cell")?.cell === key) return this.explorer.filter("cell", "", null);
    this.explorer.filter("cell", `${rows.name} ${r}, ${across.name} ${a}`, (row) => of[row] === code && over[row] === other);
    this.explorer.filters.get("cell").cell = key;
    this.explorer.pick(i ?? -1);
  }

  key(event) {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key], { rows, across } = this.setting();
    if (!step && event.key !== "Enter") return;
    event.preventDefault();
    const size = [rows.levels.names.length, across.levels.names.length];
    if (step) this.cursor = this.cursor.map((at, k) => Math.min(Math.max(at + step[k], 0), size[k] - 1));
    const key = this.cursor[0] * size[1] + this.cursor[1];
    this.made.view.signal("keyed", key).runAsync();
    const cell = this.cells()[key];
    byId("state").textContent = `${rows.name} ${cell.r}, ${across.name} ${cell.a}: ${cell.t}`;
    if (!step) this.take(cell);
  }

  async refresh() {
    if (byId("map").hidden || this.element.hidden) return;
    await this.made.view.data("cells", this.cells()).runAsync();
    this.caution();
  }

  // Of a large dataset, say where the best of the drawn points may not be that of all.
  caution() {
    const { points, filters } = this.explorer, isWhole = this.explorer.isWhole("y") && byId("y").value === points.view.sort;
    const others = [...filters.keys()].filter((key) => key !== "cell");
    byId("mapsaid").textContent = points.weight && (!isWhole || others.length) ? "Best of the drawn points: others, which are not drawn, may be better." : "";
  }
}
