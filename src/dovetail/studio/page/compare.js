// Plans beside each other: figures in a table, the better ones marked, and the maps of the last two.
import { mountMap } from "./map.js";
import { make } from "./make.js";

export function compared(all) {
  const table = make("table", "");
  table.append(make("caption", "The better figures are marked"));
  const head = table.createTHead().insertRow();
  head.append(make("th", "", { scope: "col" }), ...all.map((one) => make("th", one.title, { scope: "col", class: "num" })));
  const body = table.createTBody();
  for (const name of new Set(all.flatMap((one) => one.figures.map(([own]) => own)))) {
    const row = body.insertRow();
    row.append(make("th", name, { scope: "row" }));
    const cells = all.map((one) => one.figures.find(([own]) => own === name));
    const numbers = cells.map((cell) => cell?.[2] ?? null).filter((number) => number !== null);
    const best = numbers.length > 1 && Math.min(...numbers) < Math.max(...numbers)
      ? Math[cells.find(Boolean)[3] ? "min" : "max"](...numbers) : null;
    row.append(...cells.map((cell) => {
      const better = cell && cell[2] !== null && cell[2] === best;
      return make("td", cell ? `${better ? "✓ " : ""}${cell[1]}` : "–", { class: better ? "num better" : "num" });
    }));
  }
  const scroll = make("div", "", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Plans side by side" });
  scroll.append(table);
  const both = make("div", "", { class: "both" });
  const sides = all.slice(-2).map((one) => {
    const side = make("div");
    const drawing = make("div");
    drawing.innerHTML = one.network; // made by the server's own components, which escape every name
    side.append(make("h3", one.title), drawing);
    both.append(side);
    return [side, one];
  });
  return { parts: [scroll, both], mount: () => sides.map(([side, one]) => mountMap(side, one.details)) };
}
