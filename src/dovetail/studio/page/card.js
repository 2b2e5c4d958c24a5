// What a layer's card says on demand: its runner-up, its numbers, and the code that is generated for it.
import { make } from "./make.js";

function list(lines) {
  const found = make("dl");
  for (const [name, value] of lines) found.append(make("dt", name), make("dd", value));
  return found;
}
function codes(found) {
  return found.flatMap(({ title, note, files }) => [make("h4", title), make("p", note, { class: "muted" }),
    ...files.map(({ name, lines, text, cut }) => {
      const file = make("details", "", { class: "file" });
      file.append(make("summary", `${name}, ${lines.toLocaleString("en")} lines${cut ? ", its beginning" : ""}`),
        make("pre", text, { tabindex: 0, "aria-label": `Text of ${name}` }));
      return file;
    })]);
}
export function layerParts(found, measure, ask) {
  const parts = [list([["Beside the runner-up", found.why], ...found.numbers])];
  if (!found.measured) {
    const button = make("button", "Measure ranges and errors", { type: "button", class: "measure" });
    button.addEventListener("click", measure);
    parts.push(button);
  }
  const code = make("details", "", { class: "code" });
  const inside = make("div", "Generating …", { "aria-live": "polite" });
  code.append(make("summary", "Generated code"), inside);
  code.addEventListener("toggle", async () => {
    if (!code.open || code.dataset.asked) return;
    code.dataset.asked = "true";
    try {
      inside.replaceChildren(...codes(await ask()));
    } catch (error) {
      inside.textContent = error.message;
    }
  });
  return [...parts, code];
}
