// The table of chosen points.

const ROWS_AT_ONCE = 20;

class Listing {
  constructor(explorer) {
    this.explorer = explorer;
    this.shown = ROWS_AT_ONCE;
    this.columns = explorer.points.view.listed.map((name) => explorer.column(name)).filter(Boolean);
    const { sort, worst_first: isWorst } = explorer.points.view, column = explorer.column(sort);
    this.by = column ? { column, sign: (column.better === "more" ? -1 : 1) * (isWorst ? -1 : 1), fitsFirst: true } : null;
    byId("more").addEventListener("click", () => {
      this.shown += 5 * ROWS_AT_ONCE;
      this.refresh();
    });
    byId("csv").addEventListener("click", () => this.save());
    this.head();
  }

  head() {
    const row = document.createElement("tr");
    for (const column of this.columns) {
      const cell = document.createElement("th"), button = document.createElement("button");
      cell.className = column.isNumber ? "" : "text";
      button.type = "button";
      button.title = column.meaning;
      button.textContent = column.name;
      button.addEventListener("click", () => {
        this.by = { column, sign: this.by?.column === column ? -this.by.sign : column.better === "more" ? -1 : 1 };
        for (const other of row.children) other.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", this.by.sign > 0 ? "ascending" : "descending");
        this.refresh();
      });
      cell.append(button);
      row.append(cell);
    }
    byId("table").tHead.replaceChildren(row);
  }

  order() {
    const rows = [];
    for (let i = 0; i < this.explorer.chosen.length; i++) if (this.explorer.chosen[i]) rows.push(i);
    if (!this.by) return rows;
    const { fits } = this.explorer;
    const { column, sign, fitsFirst } = this.by, key = column.isNumber ? (i) => column.values[i] : (i) => column.text(i);
    return rows.sort((a, b) => {
      if (fitsFirst && fits[a] !== fits[b]) return fits[b] - fits[a]; // until the order is chosen
      const [one, two] = [key(a), key(b)];
      if (one !== one || two !== two) return (one !== one) - (two !== two); // gaps last
      return sign * (one < two ? -1 : one > two ? 1 : 0) || a - b;
    });
  }

  refresh() {
    const order = this.order(), shown = order.slice(0, this.shown), at = document.activeElement?.dataset?.row;
    byId("table").tBodies[0].replaceChildren(...shown.map((i) => this.row(i)));
    if (at !== undefined) byId("table").querySelector(`tr[data-row="${at}"]`)?.focus({ preventScroll: true });
    byId("more").hidden = shown.length === order.length;
    const first = this.by?.fitsFirst && this.explorer.fits.includes(0) && this.explorer.anyFits ? ", feasible ones first" : "";
    byId("listed").textContent = `${shown.length.toLocaleString("en")} of ${order.length.toLocaleString("en")} chosen points${first}; a row opens its point, a column's name sorts`;
  }

  row(i) {
    const row = document.createElement("tr");
    row.tabIndex = 0;
    row.dataset.row = i;
    row.setAttribute("aria-selected", String(i === this.explorer.picked));
    for (const column of this.columns) {
      const cell = row.insertCell();
      cell.textContent = column.text(i);
      if (!column.isNumber) Object.assign(cell, { className: "text", title: column.text(i) });
    }
    const open = () => {
      this.explorer.pick(i);
      byId("point").scrollIntoView({ block: "nearest" });
    };
    row.addEventListener("click", open);
    row.addEventListener("keydown", (event) => event.key === "Enter" && open());
    return row;
  }

  // Save the chosen points, with all columns, as a file.
  save() {
    const columns = [...this.explorer.points.columns.values()], { weight } = this.explorer.points;
    const cell = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const value = (column, i) => (column.isNumber ? (Number.isNaN(column.values[i]) ? "" : String(Number(column.values[i].toPrecision(7)))) : cell(column.text(i)));
    const stands = (i) => (weight ? [Number(weight[i].toPrecision(7))] : []); // how many points it stands for
    const lines = [[...columns.map((column) => cell(column.name)), ...(weight ? ["weight"] : [])].join(","), ...this.order().map((i) => [...columns.map((column) => value(column, i)), ...stands(i)].join(","))];
    const link = Object.assign(document.createElement("a"), { download: "points.csv", href: URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" })) });
    link.click();
    URL.revokeObjectURL(link.href);
  }
}
