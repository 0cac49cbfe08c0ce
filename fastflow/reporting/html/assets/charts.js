// What the charts of all pages share.

const byId = (id) => document.getElementById(id);
const embed = (element, what, renderer = "svg") => vegaEmbed(element, what, { mode: "vega", actions: false, renderer, tooltip: false });

async function unpacked(id) {
  const text = atob(document.getElementById(id).textContent), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

function spansMuch(values) {
  let least = Infinity, most = -Infinity;
  for (const value of values) {
    if (Number.isNaN(value)) continue;
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  return least > 0 && most > 30 * least;
}

function extent(values, isLog) {
  let least = Infinity, most = -Infinity;
  for (const value of values) {
    if (Number.isNaN(value) || (isLog && !(value > 0))) continue;
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  return [least, most];
}

// The tooltip of all charts. what: returns the text of an item's datum, "" for none.
function explainOn(view, what) {
  const tip = byId("tip");
  view.addEventListener("mousemove", (event, item) => {
    const text = item && item.datum ? what(item.datum) : "";
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(left, 4)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
  });
  view.addEventListener("mouseout", () => (tip.hidden = true));
}

// Follow a signal, at most once a frame.
function follow(view, signal, then) {
  let next, waits = false;
  view.addSignalListener(signal, (_, value) => {
    next = value;
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => {
      waits = false;
      then(next);
    });
  });
}
