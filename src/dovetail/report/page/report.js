import { mountGantt } from "./gantt.js";
import { mountMap } from "./map.js";
import { mountTable } from "./table.js";
import { mountTips } from "./tips.js";

const told = JSON.parse(document.getElementById("report-details").textContent);
const details = {};
for (const [key, [title, ...lines]] of Object.entries(told.details)) {
  const pairs = lines.map((number) => told.words[number]);
  details[key] = [told.words[title], pairs.flatMap((word, at) => (at % 2 ? [] : [[word, pairs[at + 1]]]))];
}
const tip = document.getElementById("tip");
mountTips(document, tip, details);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") tip.hidden = true;
});

const table = mountTable(document.getElementById("plan-table"));
mountMap(document.querySelector(".map"), details);
const drawings = document.querySelectorAll(".gantt-drawing");
if (drawings.length) mountGantt(drawings, document.getElementById("zoom"));

// A link to a layer leads to its row, whatever is closed.
const follow = () => {
  const [, index] = /^#layer-(\d+)$/.exec(location.hash) ?? [];
  if (index !== undefined) table.reveal(index)?.scrollIntoView({ block: "center" });
};
addEventListener("hashchange", follow);
document.addEventListener("click", (event) => {
  const link = event.target.closest?.('a[href^="#layer-"]');
  if (link && link.getAttribute("href") === location.hash) follow();
});
follow();

addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
document.documentElement.dataset.ready = "true";
