// A front of latency against energy: circles are plans of direct mapping or shared multipliers, diamonds of accelerators.
import { drawn, make } from "./make.js";

export function drawFront(points, take) {
  const [wide, high, left, low] = [720, 360, 90, 60];
  const ends = (key) => [Math.min(...points.map((p) => p[key])), Math.max(...points.map((p) => p[key]))];
  const along = ([a, b], value) => (b > a ? (value - a) / (b - a) : 0.5);
  const x = (p) => left + 12 + (wide - left - 60) * along(ends("energy_j"), p.energy_j);
  const y = (p) => high - low - (high - low - 30) * along(ends("latency_s"), p.latency_s);
  const drawing = drawn("svg", { viewBox: `0 0 ${wide} ${high}`, role: "group", "aria-label": `${points.length} plans, latency against energy` });
  const add = (...given) => drawing.appendChild(drawn(...given));
  const [first, last] = [points[0], points.at(-1)];
  add("path", { class: "axis", d: `M${left} 20V${high - low + 10}H${wide - 20}`, fill: "none" });
  add("path", { class: "front-line", d: points.map((p, i) => (i ? `H${x(p)}V${y(p)}` : `M${x(p)} ${y(p)}`)).join("") });
  add("text", { class: "front-words", x: x(first), y: high - 30, "text-anchor": "middle" }, first.energy);
  add("text", { class: "front-words", x: left - 8, y: y(first) + 4, "text-anchor": "end" }, first.latency);
  if (points.length > 1 && x(last) - x(first) > 90) add("text", { class: "front-words", x: x(last), y: high - 30, "text-anchor": "middle" }, last.energy);
  if (points.length > 1 && y(last) - y(first) < -16 || y(last) - y(first) > 16) add("text", { class: "front-words", x: left - 8, y: y(last) + 4, "text-anchor": "end" }, last.latency);
  add("text", { class: "front-words", x: (left + wide) / 2, y: high - 8, "text-anchor": "middle" }, "energy per frame");
  points.forEach((point, number) => {
    const [cx, cy, r] = [x(point), y(point), point.accelerator ? 9 : 7];
    const dot = add("path", { class: `front-point${point.accelerator ? " accelerator" : ""}`, tabindex: 0, role: "button", "aria-label": point.label,
      d: point.accelerator ? `M${cx} ${cy - r}l${r} ${r}l${-r} ${r}l${-r} ${-r}z` : `M${cx - r} ${cy}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z` });
    dot.append(drawn("title", {}, point.label));
    dot.addEventListener("click", () => take(number, point));
    dot.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      take(number, point);
    });
  });
  const list = make("ul", "", { class: "legend" });
  for (const [sign, words, is] of [["●", "direct mapping or shared multipliers", false], ["◆", "an accelerator", true]]) {
    if (points.some((p) => p.accelerator === is)) list.append(make("li", `${sign} ${words}`));
  }
  return [list, drawing];
}
