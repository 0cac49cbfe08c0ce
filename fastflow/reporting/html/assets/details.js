// What is inside one point: its time, roofline, memory, chip and placement.

const PHASES = { forward: "#a9cce8", backward: "#6ea8d4", update: "#4a86b8" };
const WAITS = { "exposed communication": LIMITERS.network, bubble: LIMITERS.pipeline };
const COMPONENTS = { core: "#3d4f60", l0: LIMITERS.l0, l1: LIMITERS.l1, l2: LIMITERS.l2, l3: LIMITERS.l3, dram: "#d55e00", intra: "#b79ad1", inter: "#5b4a8a", link: "#c9a227" };
const PALE = new Set([LIMITERS.l0, LIMITERS.l1, "#a9cce8", "#e6c300", "#e69f00", "#56b4e9", "#cc79a7", "#b79ad1", "#c9a227", "#6ea8d4", GREY, "#eef1f4"]);
const inkFor = (fill) => (PALE.has(fill) ? "#111" : "#fff");
const ALLOCATED = ["weights", "gradients", "optimizer", "activations", "buffers", "workspace", "recomputed", "loss"]; // in the colours of the bar of memory
const AXES = { kp1: "kernel", kp2: "kernel", tp: "tensor", cp: "context", ep: "experts", dp: "data", pp: "pipeline" };

class PointDetails {
  constructor(explorer) {
    this.explorer = explorer;
    this.drawn = -1;
    this.made = [];
    this.level = null;
  }

  value(name) {
    const column = this.explorer.column(name);
    return column && column.isNumber ? column.values[this.drawn] : NaN;
  }

  text(name) {
    return this.explorer.column(name)?.text(this.drawn) ?? "";
  }

  async refresh() {
    const i = this.explorer.picked;
    byId("point").hidden = i < 0;
    if (i === this.drawn || i < 0) return;
    this.drawn = i;
    for (const made of this.made) made.finalize();
    this.made = [];
    byId("pointname").textContent = this.explorer.name(i);
    byId("pointsaid").textContent = this.said();
    const room = Math.max(Math.min(byId("explore").clientWidth, 1280), 320), box = byId("pointcharts");
    box.replaceChildren();
    const kernels = this.kernels();
    if (kernels.length) {
      await this.icicle(box, kernels, room);
      await this.roofline(box, kernels, Math.min(room, 620));
    }
    const beside = Object.assign(document.createElement("div"), { className: "part" });
    box.append(beside);
    for (const parts of this.explorer.points.view.parts) await this.bar(beside, parts, Math.min(room, 560));
    await this.memory(beside, Math.min(room, 560));
    await this.chip(beside, Math.min(room, 560));
    this.generated(beside);
    if (!beside.childElementCount) beside.remove();
    this.placement(box);
    this.columns();
  }

  // Draw the same point anew.
  again() {
    this.drawn = -1;
    return this.refresh();
  }

  said() {
    const labels = new Map(this.explorer.points.view.said.map(({ label, column }) => [column, `${label} `]));
    return this.explorer.texts(this.drawn, [...labels.keys(), "reason"]).map(([name, text]) => (labels.get(name) ?? "") + text).join("; ");
  }

  kernels() {
    const details = this.explorer.points.details;
    if (!details) return [];
    const rows = [];
    for (let k = details.offset[this.drawn]; k < details.offset[this.drawn + 1]; k++) {
      const row = { name: details.name(k), phase: details.phase(k), bound: details.bound_by(k) };
      for (const [name, values] of Object.entries(details.numbers)) row[name] = values[k];
      rows.push(row);
    }
    return rows;
  }

  part(box, title, wide = false) {
    const part = document.createElement("div"), chart = document.createElement("div");
    part.className = wide ? "part wide" : "part";
    part.append(Object.assign(document.createElement("h3"), { textContent: title }), chart);
    box.append(part);
    return chart;
  }

  async chart(element, what, label) {
    const made = await embed(element, what);
    element.firstElementChild?.setAttribute("aria-label", label);
    explainOn(made.view, (datum) => datum.tip ?? "");
    this.made.push(made);
  }

  key(element, names, colours) {
    const key = document.createElement("p");
    key.className = "key";
    for (const name of names) {
      const one = document.createElement("span");
      one.append(Object.assign(document.createElement("i"), { style: `background:${colours[name]}` }), name);
      key.append(one);
    }
    element.after(key);
  }

  // The iteration, its phases, their kernels, and what limits each of them, from top to bottom.
  async icicle(box, kernels, room) {
    const total = this.value("time_s"), stage = this.value("bottleneck_stage"), width = room - 20, tall = 30, boxes = [];
    const add = (x, time, depth, fill, name, more = "") => boxes.push({ x0: (x / total) * width, x1: ((x + time) / total) * width, y0: depth * tall, y1: (depth + 1) * tall, fill, ink: inkFor(fill), t: name, tip: `${name}: ${show(time, "s")}, ${digits((100 * time) / total)}% of the iteration${more}` });
    add(0, total, 0, "#3d4f60", `iteration ${show(total, "s")}`);
    let x = 0;
    const limits = new Set();
    for (const phase of Object.keys(PHASES)) {
      const own = kernels.filter((row) => row.phase === phase && row.time_s > 0).sort((a, b) => b.time_s - a.time_s), time = own.reduce((all, row) => all + row.time_s, 0);
      if (!time) continue;
      add(x, time, 1, PHASES[phase], `${phase} kernels`);
      for (const row of own) {
        const part = row.time_s, more = `\n${digits(row.launches)} launches; limited by ${row.bound}${row.comm_s > 0 ? `\nits communication takes ${show(row.comm_s, "s")}` : ""}`;
        add(x, part, 2, GREY, row.name, more);
        add(x, part, 3, LIMITERS[row.bound] ?? OTHERS, row.bound, `\nof ${row.name}`);
        limits.add(row.bound);
        x += part;
      }
    }
    for (const [name, column] of [["exposed communication", "exposed_comm_s"], ["bubble", "bubble_s"]]) {
      const time = this.value(column);
      if (!(time > 0)) continue;
      add(x, time, 1, WAITS[name], name);
      if (name !== "bubble") this.waits(x, time, add);
      x += time;
    }
    const where = stage >= 0 ? `, in pipeline stage ${stage}, which sets the pace` : "";
    const chart = this.part(box, `Where the time goes${where}: phases, kernels, limiters`, true);
    await this.chart(chart, boxSpec(width, 4 * tall, boxes.filter((one) => one.x1 - one.x0 > 0.4)), `Time of one iteration, ${show(total, "s")}: ${boxes.filter((one) => one.y0 === tall).map((one) => one.tip).join("; ")}`);
    this.key(chart, [...limits], LIMITERS);
  }

  // What is waited for, by kind, where the columns say so.
  waits(x, time, add) {
    const kinds = [...this.explorer.points.columns.keys()].filter((name) => name.endsWith("_exposed_s") && this.value(name) > 0);
    const sum = kinds.reduce((all, name) => all + this.value(name), 0);
    for (const name of kinds.sort((a, b) => this.value(b) - this.value(a))) {
      const part = (this.value(name) / sum) * time;
      add(x, part, 2, GREY, name.slice(0, -"_exposed_s".length));
      x += part;
    }
  }

  async roofline(box, kernels, room) {
    const { levels } = this.explorer.points.details, peak = this.value("compute_flops");
    const level = this.level ?? (levels.includes("dram") ? "dram" : levels.at(-1)), rate = this.value(`${level}_Bps`);
    const dots = kernels.filter((row) => row.flop > 0 && row[`${level}_B`] > 0 && row.time_s > 0);
    if (!dots.length || !(peak > 0) || !(rate > 0)) {
      if (this.level === null) return;
      this.level = null; // this point has no kernel with bytes of the level that was chosen before
      return this.roofline(box, kernels, room);
    }
    const all = kernels.reduce((sum, row) => sum + row.time_s, 0), places = dots.map((row) => row.flop / row[`${level}_B`]);
    const knee = peak / rate, low = Math.min(...places, knee) / 3, high = Math.max(...places, knee) * 3;
    const least = Math.min(...dots.map((row) => row.flop / row.time_s), low * rate) / 2;
    const roofs = [[low, low * rate, "rate"], [knee, peak, "rate"], [knee, peak, "peak"], [high, peak, "peak"]].map(([x, y, name]) => ({ x, y: y / 1e12, name, c: name === "rate" ? COMPONENTS[level] ?? INK : COMPONENTS.core }));
    Object.assign(roofs[0], { end: true, t: `${level} ${show(rate, "B/s")}`, dx: 14, align: "left" });
    Object.assign(roofs[3], { end: true, t: `peak ${show(peak, "flop/s")}`, dx: -6, align: "right" });
    const points = dots.map((row, k) => ({ x: places[k], y: row.flop / row.time_s / 1e12, c: LIMITERS[row.bound] ?? OTHERS, size: 25 + 1500 * (row.time_s / all), tip: `${row.name} (${row.phase})\n${show(row.flop / row.time_s, "flop/s")} at ${digits(places[k])} flop/B of ${level}\nlimited by ${row.bound}; ${digits((100 * row.time_s) / all)}% of kernel time` })).sort((a, b) => b.size - a.size);
    const chart = this.part(box, "Roofline: kernels by share of time"), menu = document.createElement("select"), label = document.createElement("label");
    for (const name of levels.toReversed()) menu.add(new Option(name, name, false, name === level));
    label.append("bytes of ", menu);
    chart.before(label);
    menu.addEventListener("change", () => {
      this.level = menu.value;
      this.hadFocus = true;
      this.redraw();
    });
    if (this.hadFocus) menu.focus({ preventScroll: true });
    this.hadFocus = false;
    const x = { kind: "log", domain: [low, high], title: `flop per byte of ${level}` }, y = { kind: "log", domain: [least / 1e12, (peak * 2) / 1e12], title: "rate [Tflop/s]" };
    await this.chart(chart, rooflineSpec(room - 90, 300, x, y, roofs, points), `Roofline of ${dots.length} kernels over bytes of ${level}`);
  }

  async bar(box, { title, columns, limit, total, rest, overlap }, room) {
    const parts = Object.entries(columns).map(([name, column]) => ({ name, column: this.explorer.column(column), value: this.value(column) })).filter((part) => part.value > 0);
    if (!parts.length) return;
    const left = this.value(total) - parts.reduce((all, part) => all + part.value, 0);
    if (left > 1e-4 * this.value(total)) parts.push({ name: rest, column: this.explorer.column(total), value: left });
    const sum = parts.reduce((all, part) => all + part.value, 0), room0 = limit ? this.value(limit) : NaN, width = room - 20;
    const most = overlap ? Math.max(...parts.map((part) => part.value)) : Math.max(sum, room0 > 0 ? room0 : 0);
    let x = 0;
    const boxes = parts.map((part, k) => {
      const fill = LIMITERS[part.name] ?? COMPONENTS[part.name] ?? APART[k % APART.length], from = overlap ? 0 : x;
      x = from + part.value;
      const [y0, y1] = overlap ? [18 * k, 18 * k + 16] : [0, 34]; // each in a row of its own, or one after the other
      return { x0: (from / most) * width, x1: (x / most) * width, y0, y1, fill, ink: inkFor(fill), t: overlap ? `${part.name} ${show(part.value, part.column.unit)}` : part.name, tip: `${part.name}: ${show(part.value, part.column.unit)}${overlap ? "" : `, ${digits((100 * part.value) / sum)}%`}` };
    });
    const unit = parts[0].column.unit, is = overlap ? "" : room0 > 0 ? `: ${show(sum, unit)} of ${show(room0, unit)}` : `: ${show(sum, unit)}`;
    if (room0 > 0) boxes.push({ x0: 0, x1: (room0 / most) * width, y0: 38, y1: 46, fill: "#3d4f60", ink: "#fff", t: "", tip: `there is room for ${show(room0, unit)}` });
    const chart = this.part(box, unit ? title + is : title);
    await this.chart(chart, boxSpec(width, Math.max(...boxes.map((one) => one.y1)), boxes), `${title}: ${boxes.map((one) => one.tip).join("; ")}`);
    this.key(chart, parts.map((part) => part.name), Object.fromEntries(parts.map((part, k) => [part.name, boxes[k].fill])));
  }

  // What a device has allocated over the iteration, by kind, and the name of the peak.
  async memory(box, room) {
    const memory = this.explorer.points.details?.memory, first = memory?.offset[this.drawn], last = memory?.offset[this.drawn + 1];
    if (!(last > first)) return;
    const { start_s, end_s, bottom_B, size_B } = memory.numbers, width = room - 20, tall = 150, kinds = [], boxes = [];
    let most = 0, total = 0;
    for (let k = first; k < last; k++) {
      most = Math.max(most, bottom_B[k] + size_B[k]);
      total = Math.max(total, end_s[k]);
    }
    const colours = Object.fromEntries(ALLOCATED.map((kind, k) => [kind, APART[k]])), y = (bytes) => tall * (1 - bytes / most);
    for (let k = first; k < last; k++) {
      const kind = memory.kind(k);
      if (!kinds.includes(kind)) kinds.push(kind);
      boxes.push({ x0: (start_s[k] / total) * width, x1: (end_s[k] / total) * width, y0: y(bottom_B[k] + size_B[k]), y1: y(bottom_B[k]), fill: colours[kind], ink: "#111", t: "", tip: `${kind}: ${show(size_B[k], "B")}\nfrom ${show(start_s[k], "s")} to ${show(end_s[k], "s")}` });
    }
    const title = `Memory of one device over the iteration, most in the ${memory.peak(this.drawn)}: ${show(most, "B")}`;
    const chart = this.part(box, title);
    await this.chart(chart, boxSpec(width, tall, boxes, 0), title);
    this.key(chart, kinds, colours);
  }

  async chip(box, room) {
    const areas = Object.entries(this.explorer.points.details?.areas ?? {}).map(([name, values]) => ({ name: name || "unassigned area", area: values[this.drawn] * 1e6 })).filter((part) => part.area > 0.05);
    if (!areas.length) return;
    const die = areas.reduce((all, part) => all + part.area, 0);
    const parts = areas.map(({ name, area }) => ({ name, area, fill: COMPONENTS[name] ?? GREY, ink: inkFor(COMPONENTS[name] ?? GREY), t: `${name} ${digits(area)} mm²`, tip: `${name}: ${digits(area)} mm², ${digits((100 * area) / die)}% of the die${Number.isNaN(this.value(`${name}_B`)) ? "" : `\n${this.text(`${name}_B`)}`}` }));
    const chart = this.part(box, `Floor plan of the die, ${digits(die)} mm²: budgets to scale (where a part lies is not modelled)`);
    await this.chart(chart, dieSpec(room - 20, Math.round((room - 20) * 0.55), parts), `Areas of the die: ${parts.map((part) => part.tip).join("; ")}`);
  }

  // What the generator made of the budgets: capacity and rate of every level, units, links.
  generated(box) {
    const known = (name) => (this.value(name) > 0 ? this.text(name) : "");
    const made = (name, what) => (known(name) ? `${known(name)} ${what}${this.value(name) === 1 ? "" : "s"}` : "");
    const levels = [...this.explorer.points.columns.keys()].filter((name) => /^l\d_Bps$/.test(name)).map((name) => name.slice(0, 2)).sort();
    const rows = [
      ["core", "", known("compute_flops"), [made("mcus", "MCU"), made("bundles", "bundle"), known("core_V"), known("core_Hz")]],
      ...levels.map((level) => [level, known(`${level}_B`), known(`${level}_Bps`), [made(`${level}_banks`, "bank")]]),
      ["dram", known("dram_capacity_B"), known("dram_Bps"), [made("dram_devices", "device")]],
      ["network", "", known("inter_Bps"), ["between packages, one direction"]],
      ["", "", known("intra_Bps"), ["in a package, one direction"]],
    ].filter(([, capacity, rate]) => capacity || rate);
    if (rows.length < 2) return;
    const apart = this.value("prefill_devices") > 0 ? " of decode" : "";
    const element = this.part(box, `Chip${apart}`), table = document.createElement("table"), head = table.createTHead().insertRow();
    table.className = "generated";
    for (const name of ["", "capacity", "rate", ""]) head.append(Object.assign(document.createElement("th"), { textContent: name }));
    const body = table.createTBody();
    for (const [name, capacity, rate, more] of rows) {
      const row = body.insertRow();
      for (const [text, kind] of [[name, "text"], [capacity, ""], [rate, ""], [more.filter(Boolean).join(", "), "text"]]) Object.assign(row.insertCell(), { textContent: text, className: kind });
    }
    element.append(table);
  }

  placement(box) {
    const rows = Object.entries(AXES).map(([axis, what]) => [axis, what, this.value(`${axis}_hops`), this.text(`${axis}_Bps`)]).filter(([, , hops]) => hops > 0);
    const details = this.explorer.points.details, number = details ? details.picture[this.drawn] : -1;
    if (!rows.length && number < 0) return;
    const element = this.part(box, `Placement ${this.text("placement")}: neighbours along each dimension`, number >= 0);
    if (rows.length) {
      const table = document.createElement("table"), head = table.createTHead().insertRow();
      for (const name of ["dimension", "hops", "bandwidth"]) head.append(Object.assign(document.createElement("th"), { textContent: name }));
      for (const [axis, what, hops, rate] of rows) for (const [k, text] of [`${axis} (${what})`, digits(hops), rate].entries()) {
        const row = k ? table.tBodies[0].rows[table.tBodies[0].rows.length - 1] : (table.tBodies[0] ?? table.createTBody()).insertRow();
        Object.assign(row.insertCell(), { textContent: text, className: k ? "" : "text" });
      }
      element.append(table);
    }
    if (number >= 0) element.append(Object.assign(document.createElement("img"), { alt: `Placement of ${this.text("strategy")}: devices and the load of links`, src: `data:image/svg+xml;base64,${details.pictures[number]}` }));
  }

  columns() {
    const table = byId("pointcolumns").querySelector("table"), body = document.createElement("tbody");
    for (const column of this.explorer.points.columns.values()) {
      const row = body.insertRow();
      for (const [text, name] of [[column.name, "text"], [column.text(this.drawn), ""], [column.meaning, "text"]]) Object.assign(row.insertCell(), { textContent: text, className: name });
    }
    table.replaceChildren(body);
  }
}
