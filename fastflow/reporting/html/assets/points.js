// The points of the page, read from its data.

const KINDS = { f4: Float32Array, i4: Int32Array, u2: Uint16Array, u1: Uint8Array };
const MOST_LEVELS = 40; // of a column that is taken as a choice

// One column: numbers, or texts as codes of names.
class Column {
  constructor(about, rows, array) {
    Object.assign(this, { name: about.name, unit: about.unit, meaning: about.meaning, better: about.better, rows });
    this.isNumber = !("texts" in about);
    if (about.numbers) this.values = array(about.numbers);
    else if (this.isNumber) this.values = new Float32Array(rows).fill(about.constant ?? NaN);
    else {
      this.names = about.texts.names;
      this.values = array(about.texts.codes);
    }
    this.varies = !("constant" in about) && (this.isNumber || this.names.length > 1);
  }

  text(i) {
    if (!this.isNumber) return this.names[this.values[i]];
    const level = this.levels?.codes[i] ?? -1; // a choice is written as on its axis
    return level >= 0 ? this.levels.names[level] : show(this.values[i], this.unit);
  }

  // As choices: names in their order, and the place of each row among them (-1 for none); null where too many.
  get levels() {
    if (this.kept !== undefined) return this.kept;
    if (!this.isNumber) {
      this.kept = { names: this.names.map((name) => name || "–"), codes: this.values };
    } else {
      const found = new Set();
      for (const value of this.values) {
        if (!Number.isNaN(value)) found.add(value);
        if (found.size > MOST_LEVELS) return (this.kept = null);
      }
      const order = [...found].sort((a, b) => a - b), place = new Map(order.map((value, i) => [value, i]));
      let names = [];
      for (let many = 3; many < 8 && new Set(names).size < order.length; many++) names = order.map((value) => show(value, this.unit, many));
      this.kept = {
        names, // with as many digits as tell them apart
        codes: Int16Array.from(this.values, (value) => place.get(value) ?? -1),
      };
    }
    return this.kept;
  }

  get isChoice() {
    return this.varies && this.levels !== null && this.levels.names.length <= MOST_LEVELS;
  }

  get title() {
    return this.name;
  }
}

function readPoints(buffer) {
  const size = new DataView(buffer).getUint32(0, true), start = 4 + size;
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const array = ({ at, size, kind }) => new KINDS[kind](buffer, start + at, size);
  const columns = new Map(header.columns.map((about) => [about.name, new Column(about, header.rows, array)]));
  const details = header.details && {
    ...header.details,
    offset: array(header.details.offset),
    picture: array(header.details.picture),
    numbers: Object.fromEntries(Object.entries(header.details.numbers).map(([name, place]) => [name, array(place)])),
    areas: Object.fromEntries(Object.entries(header.details.areas).map(([name, place]) => [name, array(place)])),
  };
  for (const name of details ? ["name", "phase", "bound_by"] : []) {
    const { names, codes } = header.details[name], of = array(codes);
    details[name] = (k) => names[of[k]];
  }
  if (details?.memory) {
    const { offset, kind, peak, numbers } = header.details.memory, kinds = array(kind.codes), peaks = array(peak.codes);
    details.memory = {
      offset: array(offset), kind: (k) => kind.names[kinds[k]], peak: (i) => peak.names[peaks[i]],
      numbers: Object.fromEntries(Object.entries(numbers).map(([name, place]) => [name, array(place)])),
    };
  }
  const weight = header.weight ? array(header.weight) : null;
  UNITS = header.units;
  return { fronts: new Set(header.fronts), rows: header.rows, total: header.total, view: header.view, columns, weight, details };
}
