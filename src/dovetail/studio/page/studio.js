// The studio: a question that changes, its answer drawn by the report's components.
import { mountGantt } from "./gantt.js";
import { mountMap } from "./map.js";
import { mountTable } from "./table.js";
import { mountTips } from "./tips.js";

const $ = (id) => document.getElementById(id);
const make = (tag, words = "", attributes = {}) => {
  const element = document.createElement(tag);
  element.textContent = words;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};

// Talking to the server.
let session = "";
async function ask(path, body, raw = false) {
  const answer = await fetch(`/api/${path}`, { method: "POST", body, headers: { "X-Dovetail-Session": session } });
  if (answer.ok) return raw ? answer.blob() : answer.json();
  throw new Error((await answer.json()).error);
}

// What can be moved: each slider's position is a part of its way, its value what is asked; the end at `free` asks nothing.
const percent = (value) => `${Math.round(100 * value)} %`;
const times = (value) => (value === 1 ? "as the board has it" : `× ${value.toPrecision(2)}`);
const power = (low, high) => ({ at: (part) => low * (high / low) ** part, part: (value) => Math.log(value / low) / Math.log(high / low) });
const line = (low, high) => ({ at: (part) => low + (high - low) * part, part: (value) => (value - low) / (high - low) });
const spread = (name) => ({ get at() { return power(0.3 * scale[name], 4 * scale[name]).at; } });
const scale = { latency: 10, energy: 50, rate: 100 };
const shown = (value) => (value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3));
const SLIDERS = {
  max_latency_ms: { words: "Latency at most", range: spread("latency"), free: 1, say: (v) => `${shown(v)} ms` },
  max_energy_mj: { words: "Energy at most", range: spread("energy"), free: 1, say: (v) => `${shown(v)} mJ` },
  min_fps: { words: "Frames/s at least", range: spread("rate"), free: 0, say: shown },
  fill: { words: "FPGA area at most", range: line(0.05, 1), free: 1, say: percent },
  thrift: { words: "Thrift: give up for area", range: line(0, 0.2), start: 0, say: percent },
  clock: { words: "FPGA clock", range: power(0.25, 4), start: 0.5, say: times },
  bandwidth: { words: "Link bandwidth", range: power(0.1, 10), start: 0.5, say: times },
};
const values = {};
const pins = new Map();

function valueOf(name) {
  const { range, free } = SLIDERS[name];
  const part = Number($(name).value) / 100;
  if (part === free) return null;
  const value = range.at(part);
  return Math.abs(value - 1) < 1e-9 ? 1 : value;
}
function tell(name) {
  const value = values[name];
  $(`${name}-said`).textContent = value === null ? (name === "fill" ? "as it fits" : "no limit") : SLIDERS[name].say(value);
}
function place(name, part) {
  $(name).value = 100 * part;
  values[name] = valueOf(name);
  tell(name);
}
function free(name) {
  place(name, SLIDERS[name].free ?? SLIDERS[name].start);
}
for (const [name, { words }] of Object.entries(SLIDERS)) {
  const label = make("label", "", { class: "slider", for: name });
  const input = make("input", "", { type: "range", id: name, min: 0, max: 100, step: 1, "aria-describedby": `${name}-said` });
  label.append(make("span", words), make("output", "", { id: `${name}-said`, for: name }), input);
  $("sliders").append(label);
  free(name);
  input.addEventListener("input", () => {
    values[name] = valueOf(name);
    tell(name);
    soon();
  });
}
const question = () => JSON.stringify({ board: $("board").value, goal: $("goal").value, ...values, pins: Object.fromEntries(pins) });

// Solving again: one question is under way, and the last one that was asked meanwhile follows it.
let opened = null;
let waiting = false;
let busy = false;
let timer = 0;
const soon = () => {
  clearTimeout(timer);
  timer = setTimeout(live, 60);
};
const wrong = (words = "") => {
  $("wrong").textContent = words;
  $("wrong").hidden = !words;
  $("answer").classList.toggle("stale", Boolean(words));
};
async function live() {
  if (!opened || busy) return void (waiting = true);
  busy = true;
  const began = performance.now();
  $("status").textContent = "Planning …";
  try {
    const view = await ask("live", question());
    wrong();
    draw(view);
    const took = (performance.now() - began) / 1000;
    $("status").textContent = `Answered in ${took.toPrecision(2)} s over a few forms of the FPGA; “Search everything” weighs all.`;
    document.documentElement.dataset.took = took;
  } catch (error) {
    wrong(error.message);
    $("status").textContent = "";
  }
  busy = false;
  document.documentElement.dataset.answers = Number(document.documentElement.dataset.answers ?? 0) + 1;
  if (waiting) {
    waiting = false;
    live();
  }
}

// Drawing an answer.
let view = null;
let map = null;
let chosen = null;
const put = (id, markup) => {
  $(id).innerHTML = markup; // made by the server's own components, which escape every name
};
function draw(found) {
  view = found;
  $("welcome").hidden = true;
  $("answer").hidden = false;
  $("title").textContent = `${opened.name} on ${$("board").value}`;
  for (const [id, part] of Object.entries({ lead: "lead", cards: "cards", table: "plan", "timeline-part": "timeline",
    bars: "resources", "verdict-part": "verdict" })) put(id, view[part]);
  const kept = map?.where();
  put("map", view.network);
  map = mountMap($("map"), view.details, select, kept);
  mountTips($("answer"), $("tip"), view.details);
  const table = mountTable($("plan-table"));
  if ($("gantt")) mountGantt($("gantt"), $("zoom"));
  $("table").onclick = $("map").onclick = $("timeline-part").onclick = (event) => {
    const link = event.target.closest('a[href^="#layer-"]');
    if (!link || link.closest("svg.network")) return;
    event.preventDefault();
    table.reveal(Number(link.hash.slice(7)))?.scrollIntoView({ block: "center" });
  };
  if (chosen !== null) map.show(chosen, false);
  $("keep").disabled = $("save-plan").disabled = $("save-report").disabled = false;
  compare();
}
function select(index, card) {
  chosen = index;
  if (index === null) return;
  const { name, devices } = view.nodes[index];
  const label = make("label", "Put it on", { class: "pin" });
  const choice = make("select", "", { "aria-label": `Device of ${name}` });
  for (const device of ["any device", ...devices]) choice.append(make("option", device));
  choice.value = pins.get(name) ?? "any device";
  choice.addEventListener("change", () => {
    if (choice.value === "any device") pins.delete(name);
    else pins.set(name, choice.value);
    listPins();
    live();
  });
  label.append(choice);
  card.querySelector("dl").before(label);
}
function listPins() {
  $("pinned").hidden = !pins.size;
  $("pins").replaceChildren(...[...pins].map(([name, device]) => {
    const item = make("li", `${name} on ${device} `);
    const remove = make("button", "×", { type: "button", "aria-label": `Free ${name}` });
    remove.addEventListener("click", () => {
      pins.delete(name);
      listPins();
      live();
    });
    item.append(remove);
    return item;
  }));
}

// Plans side by side.
const keeps = [];
$("keep").addEventListener("click", () => {
  keeps.push({ ...view, title: `${opened.name} on ${$("board").value}, plan ${keeps.length + 1}` });
  if (keeps.length > 3) keeps.shift();
  compare();
  $("compare").scrollIntoView({ block: "nearest" });
});
function compare() {
  $("compare").hidden = !keeps.length;
  if (!keeps.length) return;
  const all = [...keeps, { ...view, title: "this plan" }];
  const table = make("table", "");
  table.append(make("caption", "What was kept beside the plan that is shown; the better figures are marked"));
  const head = table.createTHead().insertRow();
  head.append(make("th", "", { scope: "col" }), ...all.map((one) => make("th", one.title, { scope: "col", class: "num" })));
  const rows = [...new Set(all.flatMap((one) => one.figures.map(([name]) => name)))];
  const body = table.createTBody();
  for (const name of rows) {
    const row = body.insertRow();
    row.append(make("th", name, { scope: "row" }));
    const cells = all.map((one) => one.figures.find(([own]) => own === name));
    const numbers = cells.map((cell) => cell?.[2] ?? null).filter((number) => number !== null);
    const best = numbers.length > 1 && Math.min(...numbers) < Math.max(...numbers)
      ? Math[cells.find(Boolean)[3] ? "min" : "max"](...numbers) : null;
    row.append(...cells.map((cell) => make("td", cell ? `${cell[2] !== null && cell[2] === best ? "✓ " : ""}${cell[1]}` : "–",
      { class: cell && cell[2] !== null && cell[2] === best ? "num better" : "num" })));
  }
  const scroll = make("div", "", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Plans side by side" });
  scroll.append(table);
  const both = make("div", "", { class: "both" });
  for (const one of [keeps.at(-1), all.at(-1)]) {
    const side = make("div");
    const drawing = make("div");
    drawing.innerHTML = one.network; // as above
    side.append(make("h3", one.title), drawing);
    both.append(side);
  }
  $("compared").replaceChildren(scroll, both);
  [...both.children].forEach((side, i) => mountMap(side, [keeps.at(-1), view][i].details));
}

// A front, drawn from what the server found.
$("draw-front").addEventListener("click", async () => {
  await long("pareto", "Looking for the front", (points) => {
    const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const [wide, high, left, low] = [720, 360, 90, 60];
    const ends = (key) => [Math.min(...points.map((p) => p[key])), Math.max(...points.map((p) => p[key]))];
    const along = ([a, b], value) => (b > a ? (value - a) / (b - a) : 0.5);
    const x = (p) => left + (wide - left - 40) * along(ends("energy_j"), p.energy_j);
    const y = (p) => high - low - (high - low - 30) * along(ends("latency_s"), p.latency_s);
    const add = (tag, attributes, words = "") => {
      const element = document.createElementNS(drawing.namespaceURI, tag);
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      element.textContent = words;
      drawing.append(element);
      return element;
    };
    drawing.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    drawing.setAttribute("role", "group");
    drawing.setAttribute("aria-label", `${points.length} plans, latency against energy`);
    add("path", { class: "axis", d: `M${left} 20V${high - low + 10}H${wide - 20}`, fill: "none" });
    const sorted = [...points].sort((a, b) => a.energy_j - b.energy_j);
    add("path", { class: "front-line", d: sorted.map((p, i) => (i ? `H${x(p)}V${y(p)}` : `M${x(p)} ${y(p)}`)).join("") });
    const [first, last] = [sorted[0], sorted.at(-1)];
    add("text", { class: "front-words", x: x(first), y: high - 30, "text-anchor": "middle" }, first.energy);
    if (sorted.length > 1) add("text", { class: "front-words", x: x(last), y: high - 30, "text-anchor": "middle" }, last.energy);
    add("text", { class: "front-words", x: left - 8, y: y(first) + 4, "text-anchor": "end" }, first.latency);
    if (sorted.length > 1) add("text", { class: "front-words", x: left - 8, y: y(last) + 4, "text-anchor": "end" }, last.latency);
    add("text", { class: "front-words", x: (left + wide) / 2, y: high - 8, "text-anchor": "middle" }, "energy per frame");
    for (const point of sorted) {
      const dot = add("circle", { class: "front-point", cx: x(point), cy: y(point), r: 7, tabindex: 0, role: "button",
        "aria-label": point.label });
      const title = document.createElementNS(drawing.namespaceURI, "title");
      title.textContent = point.label;
      dot.append(title);
      const take = () => {
        $("goal").value = "latency";
        values.max_energy_mj = point.limit_mj * (1 + 1e-9);
        const span = power(0.3 * scale.energy, 4 * scale.energy);
        $("max_energy_mj").value = Math.min(99, Math.max(0, 100 * span.part(values.max_energy_mj)));
        tell("max_energy_mj");
        live();
      };
      dot.addEventListener("click", take);
      dot.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") take();
      });
    }
    $("front-drawing").replaceChildren(drawing);
  });
});

// Searches that take long: the stage is told, and they can be stopped.
let stopped = false;
async function long(path, words, done) {
  if (!opened || busy) return;
  busy = true;
  stopped = false;
  $("search").disabled = $("draw-front").disabled = true;
  $("stop").hidden = false;
  $("status").textContent = `${words} …`;
  const look = setInterval(async () => {
    const answer = await fetch("/api/stage", { headers: { "X-Dovetail-Session": session } });
    const { stage, done: count, total } = await answer.json();
    if (stage && busy) $("status").textContent = `${words}: ${stage}, ${count} of ${total}`;
  }, 700);
  try {
    const found = await ask(path, question());
    wrong();
    $("status").textContent = `${words}: done.`;
    done(found);
  } catch (error) {
    if (stopped) $("status").textContent = "Stopped.";
    else wrong(error.message);
  }
  clearInterval(look);
  busy = false;
  $("search").disabled = $("draw-front").disabled = false;
  $("stop").hidden = true;
  if (waiting) {
    waiting = false;
    live();
  }
}
$("search").addEventListener("click", () => long("search", "Searching everything", draw));
$("stop").addEventListener("click", () => {
  stopped = true;
  ask("stop");
});

// Opening networks.
async function open(query, body, words) {
  if (busy) return;
  busy = true;
  $("status").textContent = `Reading ${words} …`;
  wrong();
  let read = true;
  try {
    opened = await ask(`model?${new URLSearchParams(query)}`, body);
  } catch (error) {
    wrong(error.message);
    $("status").textContent = "";
    read = false;
  }
  busy = waiting = false;
  if (!read) return;
  chosen = map = null;
  pins.clear();
  listPins();
  $("front-drawing").replaceChildren();
  await settle();
}
// A network or board of its own scale: limits begin free, and their sliders span what its plan takes.
async function settle() {
  for (const name of Object.keys(SLIDERS)) free(name);
  await live();
  const number = (name) => view?.figures.find(([own]) => own === name)?.[2];
  Object.assign(scale, { latency: 1000 * (number("Latency") ?? 0.01), energy: 1000 * (number("Energy per frame") ?? 0.05),
    rate: number("Frames per second") ?? 100 });
}
$("network").addEventListener("change", () => {
  const name = $("network").value;
  if (name) open(name === "(given)" ? { given: "" } : { network: name }, undefined, name);
});
const upload = (file) => {
  if (!file) return;
  $("network").value = "";
  open({ name: file.name }, file, file.name);
};
$("upload").addEventListener("change", () => upload($("upload").files[0]));
addEventListener("dragover", (event) => {
  event.preventDefault();
  $("drop").hidden = false;
});
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) $("drop").hidden = true;
});
addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").hidden = true;
  upload(event.dataTransfer.files[0]);
});
$("board").addEventListener("change", () => {
  pins.clear();
  listPins();
  $("front-drawing").replaceChildren();
  if (opened) settle();
});
$("goal").addEventListener("change", live);
$("reset").addEventListener("click", () => {
  pins.clear();
  listPins();
  for (const name of Object.keys(SLIDERS)) free(name);
  live();
});
$("question").addEventListener("submit", (event) => event.preventDefault());
addEventListener("keydown", (event) => {
  if (event.key === "Escape") $("tip").hidden = true;
});

// Saving.
async function save(path, name, kind) {
  try {
    const link = make("a", "", { download: name });
    link.href = URL.createObjectURL(new Blob([await ask(path, undefined, true)], { type: kind }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  } catch (error) {
    wrong(error.message);
  }
}
$("save-plan").addEventListener("click", () => save("plan", "plan.json", "application/json"));
$("save-report").addEventListener("click", () => save("report", "report.html", "text/html"));
$("keep").disabled = $("save-plan").disabled = $("save-report").disabled = true;

const choices = await (await fetch("/api/choices")).json();
$("network").append(make("option", "choose one", { value: "" }));
if (choices.given) $("network").append(make("option", choices.given, { value: "(given)" }));
for (const name of choices.networks) $("network").append(make("option", name));
for (const { name, words } of choices.boards) $("board").append(make("option", name, { title: words }));
$("board").value = "tx2-c10gx";
session = (await ask("session")).session;
document.documentElement.dataset.ready = "true";
if (choices.given) {
  $("network").value = "(given)";
  open({ given: "" }, undefined, choices.given);
}
