// The studio: a question that changes, its answer drawn by the report's components.
import { layerParts } from "./card.js";
import { compared } from "./compare.js";
import { mountDrag } from "./drag.js";
import { drawFront } from "./front.js";
import { mountGantt } from "./gantt.js";
import { make } from "./make.js";
import { mountMap } from "./map.js";
import { SLIDERS, free, mountSliders, power, scale, tell, values } from "./sliders.js";
import { mountTable } from "./table.js";
import { mountTips } from "./tips.js";

const $ = (id) => document.getElementById(id);
// Talking to the server.
let session = "";
const post = (path, body, as, more = {}) => fetch(`/api/${path}`, { method: "POST", body, headers: { "X-Dovetail-Session": as }, ...more });
async function ask(path, body, raw = false, as = session) {
  const answer = await post(path, body, as);
  if (answer.ok) return raw ? answer.blob() : answer.json();
  throw new Error((await answer.json()).error);
}

const pins = new Map();
mountSliders(() => live());
const narrow = matchMedia("(max-width: 860px)");
const fold = () => { $("limits").open = !narrow.matches; };  // the plan comes first where there is little room
narrow.addEventListener("change", fold);
fold();
const boardOf = (name) => name.replace(/:N$/, `:${Math.min(16, Math.max(1, Math.round(Number($("fpgas").value)) || 2))}`);
const question = (board = $("board").value, own = pins) => JSON.stringify({ board: boardOf(board), goal: $("goal").value, ...values, pins: Object.fromEntries(own) });

// Solving again: one question is under way, and the last one that was asked meanwhile follows it.
let opened = null;
let waiting = false;
let busy = false;
const working = (is) => {
  busy = is;
  $("main").setAttribute("aria-busy", is);
  if (!is) setTimeout(openNext);
};
const wrong = (words = "") => {
  $("wrong").textContent = words;
  $("wrong").hidden = !words;
  $("answer").classList.toggle("stale", Boolean(words));
};
async function live(from = "live") {
  if (!opened || busy) return void (waiting = true);
  working(true);
  const began = performance.now();
  $("status").textContent = from === "wider" ? "Trying other forms of the FPGA …" : "Planning …";
  let wider = false;
  try {
    const found = await ask(from, question());
    if (found.refused) {
      wrong(found.refused);
      $("status").textContent = "";
      wider = true;
    } else {
      wrong();
      await draw(found);
      const took = (performance.now() - began) / 1000;
      $("status").textContent = `Answered in ${took.toPrecision(2)} s over a few forms of the FPGA; “Search everything” weighs all.`;
      document.documentElement.dataset.took = took;
      if (!waiting) await drawRest();
    }
  } catch (error) {
    wrong(error.message);
    $("status").textContent = "";
  }
  working(false);
  document.documentElement.dataset.answers = Number(document.documentElement.dataset.answers ?? 0) + 1;
  if (waiting) {
    waiting = false;
    await live();
  } else if (wider) await live("wider");
  else if ($("beside").value) liveBeside();
}

// Drawing an answer.
let view = null;
let map = null;
let chosen = null;
let shownTable = null;
let answerNumber = 0; // of the plan that is drawn
const put = (id, markup) => {
  $(id).innerHTML = markup; // made by the server's own components, which escape every name
};
const painted = () => Promise.race([new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0))), new Promise((done) => setTimeout(done, 200))]);
// Verdict, figures and map first. What lies below them follows once these are painted, unless another plan is asked for.
const BELOW = { table: "plan", "timeline-part": "timeline", bars: "resources", "verdict-part": "verdict" };
const outdated = (is) => {
  for (const id of Object.keys(BELOW)) $(id).classList.toggle("stale", is);
};
async function draw(found) {
  view = { ...found, details: {} };
  $("welcome").hidden = true;
  $("answer").hidden = false;
  $("title").textContent = titled();
  for (const id of ["lead", "cards"]) put(id, view[id]);
  const kept = map?.where();
  map?.stop();
  put("map", view.network);
  map = mountMap($("map"), view.details, select, kept, grab);
  answerNumber += 1;
  if (chosen !== null) map.show(chosen, false);
  for (const id of SAVES) $(id).disabled = false;
  await painted();
  document.documentElement.dataset.planned = answerNumber;
  outdated(true);
}
async function drawRest() {
  const rest = await ask("rest");
  if (rest.number !== view.number) return;
  Object.assign(view.details, rest.details);
  shownTable?.stop();
  const zoomed = $("zoom")?.value;
  for (const [id, part] of Object.entries(BELOW)) put(id, rest[part]);
  outdated(false);
  if (chosen !== null) map.show(chosen, false);
  mountTips($("answer"), $("tip"), view.details);
  shownTable = mountTable($("plan-table"), shownTable);
  if (zoomed) $("zoom").value = zoomed;
  if ($("gantt")) mountGantt($("answer").querySelectorAll(".gantt-drawing"), $("zoom"));
  compare();
}
// A link to a layer leads to its row.
for (const id of ["table", "map", "timeline-part"]) {
  $(id).addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#layer-"]');
    if (!link || link.closest("svg.network")) return;
    event.preventDefault();
    shownTable?.reveal(Number(link.hash.slice(7)))?.scrollIntoView({ block: "center" });
  });
}
const titled = (board = $("board").value) => `${opened.name} on ${boardOf(board)}`;
// A frame's tasks can be carried to another device as well.
$("timeline-part").addEventListener("pointerdown", (event) => {
  const task = event.target.closest("a[data-node]");
  if (task) grab(event, [Number(task.dataset.node)]);
});
$("timeline-part").addEventListener("dragstart", (event) => event.preventDefault());
function pin(layers, device) {
  for (const { name, devices } of layers.map((index) => view.nodes[index])) {
    if (device === "any device") pins.delete(name);
    else if (devices.includes(device)) pins.set(name, device);
  }
  listPins();
  live();
}
const grab = mountDrag($("tray"), {
  name: (index) => view.nodes[index].name,
  devices: (layers) => [...new Set(layers.flatMap((index) => view.nodes[index].devices))],
}, pin);
function select(index, card) {
  chosen = index;
  if (index === null || !card) return;
  const { name, devices } = view.nodes[index];
  const label = make("label", "Put it on", { class: "pin" });
  const choice = make("select", "", { "aria-label": `Device of ${name}` });
  for (const device of ["any device", ...devices]) choice.append(make("option", device));
  choice.value = pins.get(name) ?? "any device";
  choice.addEventListener("change", () => pin([index], choice.value));
  label.append(choice);
  const more = make("div", "Weighing the runner-up …", { class: "more", "aria-live": "polite" });
  card.querySelector("dl").before(label);
  card.append(more);
  const mine = answerNumber;
  setTimeout(async () => {
    if (!more.isConnected || mine !== answerNumber) return;
    try {
      const found = await ask(`layer?node=${index}`);
      more.replaceChildren(...layerParts(found, () => long(values.bits ? `numbers?bits=${values.bits}` : "numbers", "Measuring numbers", () => live()),
        () => ask(`code?node=${index}`)));
    } catch (error) {
      more.textContent = error.message;
    }
  }, 400);
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

// Plans side by side: those kept, and the same question asked of another board in a session of its own.
const keeps = [];
let shownMaps = [];
let beside = null;
$("keep").addEventListener("click", () => {
  keeps.push({ ...view, title: `${titled()}, plan ${keeps.length + 1}` });
  if (keeps.length > 3) keeps.shift();
  compare();
  $("compare").scrollIntoView({ block: "nearest" });
});
function compare() {
  const others = [...keeps, ...(beside?.view ? [{ ...beside.view, title: titled(beside.board) }] : [])];
  for (const one of shownMaps) one.stop();
  shownMaps = [];
  $("compare").hidden = !others.length;
  if (!others.length) return void $("compared").replaceChildren();
  const { parts, mount } = compared([...others, { ...view, title: "this plan" }]);
  $("compared").replaceChildren(...parts);
  shownMaps = mount();
}
async function liveBeside() {
  const board = $("beside").value;
  if (!board || !opened || beside?.busy) return void (beside && (beside.waiting = true));
  beside = { ...beside, busy: true, waiting: false };
  try {
    beside.session ??= (await ask("session")).session;
    if (beside.opened !== opened) await ask(`model?${new URLSearchParams(source.query)}`, source.body, false, beside.session);
    beside.opened = opened;
    const found = await ask("live", question(board, new Map()), false, beside.session);
    const whole = found.refused ? await ask("wider", question(board, new Map()), false, beside.session) : found;
    const rest = await ask("rest", undefined, false, beside.session);
    const wanted = $("beside").value === board; // still
    Object.assign(beside, { view: wanted ? { ...whole, details: rest.details } : null, board });
    $("beside-said").textContent = pins.size ? "Pins are of the first board alone." : "";
  } catch (error) {
    beside.view = null;
    $("beside-said").textContent = `${board}: ${error.message}`;
  }
  beside.busy = false;
  document.documentElement.dataset.besides = Number(document.documentElement.dataset.besides ?? 0) + 1;
  if (view) compare();
  if (beside.waiting) liveBeside();
}
$("beside").addEventListener("change", () => {
  if ($("beside").value) return void liveBeside();
  if (beside) beside.view = null;
  $("beside-said").textContent = "";
  if (view) compare();
});

// A front, and a point of it taken: its energy becomes the limit.
$("draw-front").addEventListener("click", () => long("pareto", "Looking for the front", (points) => {
  $("front-drawing").replaceChildren(...drawFront(points, async (number, point) => {
    if (busy) return;
    $("goal").value = "latency";
    values.max_energy_mj = point.limit_mj * (1 + 1e-6);
    const span = power(0.3 * scale.energy, 4 * scale.energy);
    $("max_energy_mj").value = Math.min(99, Math.max(0, 100 * span.part(values.max_energy_mj)));
    tell("max_energy_mj");
    await live(`take?point=${number}`);
  }));
}));

// Searches that take long: the stage is told, and they can be stopped.
let stopped = false;
const LONG = ["search", "draw-front", "save-build"];
async function long(path, words, done, raw = false) {
  if (!opened || busy) return;
  working(true);
  stopped = false;
  for (const id of LONG) $(id).disabled = true;
  $("stop").hidden = false;
  $("status").textContent = `${words} …`;
  const look = setInterval(async () => {
    const answer = await fetch("/api/stage", { headers: { "X-Dovetail-Session": session } });
    const { stage, done: count, total } = await answer.json();
    if (stage && busy) $("status").textContent = `${words}: ${stage}, ${count} of ${total}`;
  }, 700);
  try {
    const found = await ask(path, question(), raw);
    wrong();
    $("status").textContent = `${words}: done.`;
    working(false);
    done(found);
  } catch (error) {
    if (stopped) $("status").textContent = "Stopped.";
    else wrong(error.message);
  }
  clearInterval(look);
  working(false);
  for (const id of LONG) $(id).disabled = false;
  $("stop").hidden = true;
  if (waiting) {
    waiting = false;
    live();
  }
}
$("search").addEventListener("click", () => long("search", "Searching everything", async (found) => {
  await draw(found);
  await drawRest();
}));
$("stop").addEventListener("click", () => {
  stopped = true;
  ask("stop");
});

// Opening networks.
let source = null; // what was opened, for the other board's session
let next = null; // what is to be opened once nothing is under way
function open(...given) {
  next = given;
  if (!$("stop").hidden) $("stop").click();
  openNext();
}
function openNext() {
  if (busy || !next) return;
  const given = next;
  next = null;
  openNow(...given);
}
async function openNow(query, body, words) {
  working(true);
  $("status").textContent = `Reading ${words} …`;
  wrong();
  let read = true;
  try {
    opened = await ask(`model?${new URLSearchParams(query)}`, body);
    source = { query, body };
  } catch (error) {
    wrong(error.message);
    $("status").textContent = "";
    read = false;
  }
  working(false);
  waiting = false;
  if (!read) return;
  chosen = null;
  map?.stop();
  shownTable?.stop();
  map = shownTable = null;
  $("bits").disabled = opened.quantized;
  if (beside) beside.view = null;
  pins.clear();
  listPins();
  $("front-drawing").replaceChildren();
  await settle();
}
// A network or board of its own scale: limits begin free, and their sliders span what its plan takes.
async function settle() {
  for (const name of Object.keys(SLIDERS)) free(name);
  await live();
  while (busy || waiting) await new Promise((done) => setTimeout(done, 20)); // another question may have been under way
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
$("fpgas").addEventListener("change", () => $("board").dispatchEvent(new Event("change")));
$("board").addEventListener("change", () => {
  $("fpgas-field").hidden = !/:N$/.test($("board").value);
  pins.clear();
  listPins();
  $("front-drawing").replaceChildren();
  if (opened) settle();
});
$("goal").addEventListener("change", () => live());
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
function hand(blob, name) {
  const link = make("a", "", { download: name });
  link.href = URL.createObjectURL(blob);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
async function save(path, name, kind) {
  try {
    hand(new Blob([await ask(path, undefined, true)], { type: kind }), name);
  } catch (error) {
    wrong(error.message);
  }
}
$("save-plan").addEventListener("click", () => save("plan", "plan.json", "application/json"));
$("save-report").addEventListener("click", () => save("report", "report.html", "text/html"));
$("save-build").addEventListener("click", () => long("build", "Building", (blob) => hand(blob, "build.zip"), true));
const SAVES = ["keep", "save-plan", "save-report", "save-build"];
for (const id of SAVES) $(id).disabled = true;

const choices = await (await fetch("/api/choices")).json();
$("network").append(make("option", "choose one", { value: "" }));
if (choices.given) $("network").append(make("option", choices.given, { value: "(given)" }));
for (const name of choices.networks) $("network").append(make("option", name));
$("beside").append(make("option", "none", { value: "" }));
for (const { name, words } of choices.boards) for (const id of ["board", "beside"]) $(id).append(make("option", name, { title: words }));
$("board").value = "tx2-c10gx";
session = (await ask("session")).session;
// Who leaves needs no process any more.
addEventListener("pagehide", () => {
  for (const own of [session, beside?.session]) if (own) post("close", undefined, own, { keepalive: true });
});
document.documentElement.dataset.ready = "true";
if (choices.given) {
  $("network").value = "(given)";
  open({ given: "" }, undefined, choices.given);
}
