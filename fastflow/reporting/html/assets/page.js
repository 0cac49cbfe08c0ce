// The page: menus, and what happens in which order.

function fill(select, columns, chosen, none = "") {
  select.replaceChildren(...(none ? [new Option(none, "")] : []), ...columns.map((column) => new Option(column.name, column.name)));
  select.value = columns.some((column) => column.name === chosen) ? chosen : none ? "" : (columns[0]?.name ?? "");
}

const NUMBERS = new Set(["point", "design", "rank", "line", "reason"]); // which are no choices

function fillMenus(points) {
  const { view } = points, columns = [...points.columns.values()];
  const isAlone = !columns.some((column) => column.varies && column.isNumber); // one point: nothing varies
  const sides = columns.filter((column) => (column.varies || isAlone) && (column.isNumber || column.levels.names.length <= 400) && column.name !== "reason");
  const choices = columns.filter((column) => column.isChoice && !NUMBERS.has(column.name));
  fill(byId("x"), sides, view.x);
  fill(byId("y"), sides, view.y);
  fill(byId("colour"), sides, view.colour, "none");
  fill(byId("facet"), choices, "", "none");
  fill(byId("bars"), choices.length ? choices : columns.filter((column) => column.levels?.names.length === 1).slice(0, 1), view.bars);
  fill(byId("histogram"), sides.filter((column) => column.isNumber), view.histogram);
  fill(byId("rows"), choices, view.rows);
  fill(byId("across"), choices, view.across);
  byId("map").hidden = !view.rows;
  for (const id of ["x", "y"]) setSide(points, id, view.log);
  setFront(points);
}

// A front is drawn where both sides have a better end.
function setFront(points) {
  byId("front").checked = !points.view.diagonal && ["x", "y"].every((id) => points.columns.get(byId(id).value)?.better);
}

// After another axis was chosen: is it logarithmic, and which of its values are better?
function setSide(points, id, isLog = null) {
  const column = points.columns.get(byId(id).value);
  byId(`log${id}`).disabled = !column?.isNumber;
  byId(`log${id}`).checked = Boolean(column?.isNumber) && (isLog ?? spansMuch(column.values));
  byId(`better${id}`).value = column?.better || "less";
}

let isPressed = false, isLate = false; // a button of the mouse; what is told of a choice

function tellState(explorer) {
  const { points, chosen, filters } = explorer;
  let rows = 0, stands = 0;
  for (let i = 0; i < chosen.length; i++) if (chosen[i]) rows++, (stands += explorer.weight(i));
  const about = points.weight ? `, about ${Math.round(stands).toLocaleString("en")} of ${points.total.toLocaleString("en")}` : "";
  byId("state").textContent = `${rows.toLocaleString("en")} of ${points.rows.toLocaleString("en")} points chosen${about}`;
  const buttons = [...filters].map(([key, { label }]) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: `${label} ×`, title: "Remove this choice" });
    button.addEventListener("click", () => explorer.filter(key, "", null));
    return button;
  });
  if (filters.size > 1) {
    const all = Object.assign(document.createElement("button"), { type: "button", textContent: "Clear all" });
    all.addEventListener("click", () => explorer.clear());
    buttons.push(all);
  }
  isLate = isPressed;
  if (isPressed) return; // a chart that moves under the mouse would choose other points
  const hadFocus = byId("chips").contains(document.activeElement);
  byId("chips").replaceChildren(...buttons);
  if (hadFocus) (buttons[0] ?? byId("scatter")).focus({ preventScroll: true });
}

// Numbers that were typed into fields, infinite where one is empty or not in use; null where one is no number.
function typed(form, fields) {
  const values = fields.map((id, place) => {
    const text = byId(id).disabled ? "" : byId(id).value.trim(), value = Number(text);
    byId(id).setCustomValidity(Number.isNaN(value) ? "a number, such as 0.25 or 1e-3" : "");
    return text ? value : place % 2 ? Infinity : -Infinity;
  });
  return form.reportValidity() ? values : null;
}

// Empty the fields of a range, which are in the units of an axis that was there before.
function emptyFields(...fields) {
  for (const id of fields) byId(id).value = "";
}

// Work on the charts, one piece after the other; a piece that waits already is not asked for twice.
class Queue {
  constructor() {
    this.waits = new Map();
    this.busy = false;
  }

  async add(name, work) {
    this.waits.set(name, work);
    if (this.busy) return;
    this.busy = true;
    try {
      while (this.waits.size) {
        const [next, todo] = this.waits.entries().next().value;
        this.waits.delete(next);
        await todo();
      }
    } finally {
      this.busy = false;
    }
    document.documentElement.dataset.told = String(Number(document.documentElement.dataset.told ?? 0) + 1);
  }
}

const frame = () => new Promise((then) => requestAnimationFrame(() => setTimeout(then)));

async function start() {
  const points = readPoints(await unpacked("data"));
  if (!points.rows) {
    document.documentElement.dataset.ready = "yes"; // the page says that there is none
    return;
  }
  new Function(new TextDecoder().decode(await unpacked("vega")))();
  byId("explore").hidden = false;
  byId("drawn").hidden = !byId("drawn").textContent;
  fillMenus(points);
  const explorer = new Explorer(points), scatter = new Scatter(explorer), bars = new Bars(explorer), histogram = new Histogram(explorer), map = new BestMap(explorer);
  const listing = new Listing(explorer), details = new PointDetails(explorer);
  await scatter.draw();
  tellState(explorer);
  await frame();
  document.documentElement.dataset.firstPicture = performance.now().toFixed(0);
  await bars.draw();
  await histogram.draw();
  await map.draw();
  listing.refresh();
  explorer.picked = points.view.opened;
  await Promise.all([scatter.refresh(), details.refresh()]);

  const queue = new Queue();
  const refresh = async () => {
    tellState(explorer);
    if (!explorer.filters.has(scatter.key)) scatter.unbrush();
    if (!explorer.filters.has(histogram.key)) histogram.unbrush();
    await Promise.all([scatter.refresh(), bars.refresh(), histogram.refresh(), map.refresh()]);
    listing.refresh();
    await details.refresh();
  };
  explorer.listeners.push(() => queue.add("refresh", refresh));
  const draw = (name, chart) => queue.add(name, () => chart.draw());
  details.redraw = () => queue.add("point", () => details.again());
  for (const [kind, pressed] of [["pointerdown", true], ["pointerup", false], ["pointercancel", false]]) addEventListener(kind, () => {
    isPressed = pressed;
    if (isLate && !pressed) tellState(explorer);
  }, true);

  for (const id of ["x", "y", "colour", "facet", "logx", "logy"]) byId(id).addEventListener("change", () => {
    if (id === "x" || id === "y") {
      setSide(points, id);
      setFront(points);
    }
    if (id.endsWith("x") || id.endsWith("y")) emptyFields(`${id.at(-1)}0`, `${id.at(-1)}1`);
    draw("scatter", scatter);
    if (id === "y") draw("map", map);
  });
  for (const id of ["front", "betterx", "bettery"]) byId(id).addEventListener("change", () => explorer.tell());
  byId("bars").addEventListener("change", () => draw("bars", bars));
  byId("histogram").addEventListener("change", () => {
    emptyFields("h0", "h1");
    draw("histogram", histogram);
  });
  for (const id of ["rows", "across"]) byId(id).addEventListener("change", () => {
    explorer.filter("cell", "", null);
    draw("map", map);
  });
  byId("ranges").addEventListener("submit", (event) => {
    event.preventDefault();
    const ends = typed(byId("ranges"), ["x0", "x1", "y0", "y1"]);
    if (!ends) return;
    scatter.unbrush();
    scatter.choose(scatter.setting().x, scatter.setting().y, ends);
  });
  byId("range").addEventListener("submit", (event) => {
    event.preventDefault();
    const ends = typed(byId("range"), ["h0", "h1"]);
    if (!ends) return;
    histogram.unbrush();
    histogram.choose(ends);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") explorer.clear();
    if (event.key === "Enter" && document.activeElement === scatter.element && explorer.picked >= 0) byId("point").scrollIntoView({ block: "start" });
  });
  addEventListener("beforeprint", () => (document.querySelector("header details").open = true));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (Math.abs(innerWidth - width) < 60) return;
    width = innerWidth;
    for (const [name, chart] of Object.entries({ scatter, bars, histogram, map })) draw(name, chart);
    details.redraw();
  });
  document.documentElement.dataset.ready = "yes";
}

start();
