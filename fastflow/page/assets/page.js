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
  byId("map").hidden = choices.length < 2 || !view.rows;
  for (const id of ["x", "y"]) setSide(points, id, view.log);
}

// After another axis was chosen: is it logarithmic, and which of its values are better?
function setSide(points, id, isLog = null) {
  const column = points.columns.get(byId(id).value);
  byId(`log${id}`).disabled = !column?.isNumber;
  byId(`log${id}`).checked = Boolean(column?.isNumber) && (isLog ?? spansMuch(column.values));
  byId(`better${id}`).value = column?.better || "less";
}

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
  byId("chips").replaceChildren(...buttons);
}

function rangesFrom(scatter) {
  const { x, y } = scatter.setting(), given = (id, side, end) => {
    const text = byId(id).value.trim(), value = Number(text);
    byId(id).setCustomValidity(text && Number.isNaN(value) ? "a number, such as 0.25 or 1e-3" : "");
    return text && !Number.isNaN(value) ? value : side.domain[end];
  };
  const box = [given("x0", scatter.x, 0), given("x1", scatter.x, 1), given("y0", scatter.y, 0), given("y1", scatter.y, 1)];
  if (byId("ranges").reportValidity()) scatter.choose(x, y, box);
}

const frame = () => new Promise((then) => requestAnimationFrame(() => setTimeout(then)));

async function start() {
  const points = readPoints(await unpacked("data"));
  if (!points.rows) return;
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
  if (!byId("map").hidden) await map.draw();
  listing.refresh();
  explorer.picked = points.view.opened;
  await Promise.all([scatter.refresh(), details.refresh()]);

  let busy = false, again = false;
  const refresh = async () => {
    if (busy) return void (again = true);
    busy = true;
    do {
      again = false;
      tellState(explorer);
      if (!explorer.filters.has("box")) scatter.unbrush();
      if (!explorer.filters.has("range")) histogram.unbrush();
      await Promise.all([scatter.refresh(), bars.refresh(), histogram.refresh(), byId("map").hidden ? null : map.refresh()]);
      listing.refresh();
      await details.refresh();
    } while (again);
    busy = false;
    document.documentElement.dataset.told = String(Number(document.documentElement.dataset.told ?? 0) + 1);
  };
  explorer.listeners.push(refresh);

  for (const id of ["x", "y", "colour", "facet", "logx", "logy"]) byId(id).addEventListener("change", async () => {
    if (id === "x" || id === "y") setSide(points, id);
    await scatter.draw();
    if (id === "y" && !byId("map").hidden) await map.draw();
    document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn ?? 0) + 1);
  });
  for (const id of ["front", "betterx", "bettery"]) byId(id).addEventListener("change", () => refresh());
  byId("bars").addEventListener("change", () => bars.draw());
  byId("histogram").addEventListener("change", () => {
    explorer.filter("range", "", null);
    histogram.draw();
  });
  for (const id of ["rows", "across"]) byId(id).addEventListener("change", () => {
    explorer.filter("cell", "", null);
    map.draw();
  });
  byId("ranges").addEventListener("submit", (event) => {
    event.preventDefault();
    rangesFrom(scatter);
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
    scatter.draw();
  });
  document.documentElement.dataset.ready = "yes";
}

start();
