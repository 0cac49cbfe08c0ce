// Numbers and colours as a person reads them.

let UNITS = {}; // what quantities of each unit are written in, the largest first: [from what on, its size, its name]
const WORDS = [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"]];

// What a value of a unit is written in, as fastflow/core/units.py has it: [its size, its name].
function scaleFor(value, unit) {
  const known = UNITS[unit] ?? [[1, 1, unit]];
  const found = value ? known.find(([least]) => Math.abs(value) >= least * 0.9995) : known.find(([, size]) => size === 1);
  return (found ?? known.at(-1)).slice(1);
}

function digits(value, many = 3) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return value.toLocaleString("en");
  if (size >= 1e15 || size < 1e-3) return value.toExponential(many - 1).replace("e+", "e");
  const word = WORDS.find(([least]) => size >= least * 0.9995);
  if (word) return `${Number((value / word[0]).toPrecision(many))} ${word[1]}`;
  if (size >= 10 ** many / 10) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(many)));
}

function show(value, unit, many = 3) {
  if (value === null || Number.isNaN(value)) return "–";
  if (unit === "s" && Math.abs(value) < 1e-12) value = 0; // a rounding error of longer times
  const [size, name] = scaleFor(value, unit);
  return `${digits(value / size, many)}${name.startsWith("/") || !name ? "" : " "}${name}`;
}

const LIMITERS = {
  compute: "#0072b2", l0: "#86d3b5", l1: "#35ad86", l2: "#008a63", l3: "#005c42", l4: "#003a2a",
  dram: "#d55e00", launch: "#8a8a8a", network: "#cc79a7", pipeline: "#e6c300", host: "#5b4a8a",
};
// Okabe and Ito's colours, which colour-blind people tell apart; yellow is darkened for white paper.
const APART = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#bfae00", "#000000"];
const OTHERS = "#9aa4ae";
const RAMP = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];

function ramp(share) {
  const at = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1), low = Math.min(Math.floor(at), RAMP.length - 2);
  return `rgb(${RAMP[low].map((from, k) => Math.round(from + (RAMP[low + 1][k] - from) * (at - low)))})`;
}

function inkOn(share) {
  return share > 0.55 ? "#111" : "#fff";
}

// A colour for each choice of a column; where there are more choices than colours, for the most common ones.
function coloursOf({ names, codes }) {
  const known = names.filter((name) => name in LIMITERS).length;
  if (known && known >= names.length - 1) return names.map((name) => LIMITERS[name] ?? OTHERS);
  if (names.length <= APART.length) return names.map((_, code) => APART[code]);
  const counts = new Int32Array(names.length);
  for (const code of codes) if (code >= 0) counts[code]++;
  const order = names.map((_, code) => code).sort((a, b) => counts[b] - counts[a] || a - b);
  return names.map((_, code) => APART[order.indexOf(code)] ?? OTHERS);
}

// Where a logarithmic axis is labelled: at powers of ten, and between them where there are few.
function ticksOf([low, high]) {
  const decades = Math.log10(high / low), steps = decades < 1 ? [1, 2, 3, 4, 5, 6, 7, 8, 9] : decades < 2.5 ? [1, 2, 5] : [1];
  const every = decades > 12 ? 3 : decades > 7 ? 2 : 1, ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    if (power % every === 0) ticks.push(...steps.map((step) => Number(`${step}e${power}`)).filter((tick) => tick >= low && tick <= high));
  }
  return ticks;
}
