// Layers dragged onto a device: places to drop them appear while a pointer carries some.
import { make } from "./make.js";

const FAR = 6; // pixels from which on a press is a drag

export function mountDrag(tray, choices, drop) {
  let held = null;
  const end = () => {
    tray.hidden = true;
    tray.replaceChildren();
    document.documentElement.classList.remove("carrying");
    held = null;
  };
  const begin = () => {
    const words = held.layers.length > 1 ? `${held.layers.length} layers` : choices.name(held.layers[0]);
    tray.replaceChildren(make("span", `Drop ${words} on`),
      ...["any device", ...choices.devices(held.layers)].map((device) => make("span", device, { class: "target", "data-device": device })));
    tray.hidden = false;
    document.documentElement.classList.add("carrying");
    held.carried = true;
  };
  const over = (event) => document.elementFromPoint(event.clientX, event.clientY)?.closest?.("#tray .target");
  addEventListener("pointermove", (event) => {
    if (!held || event.pointerId !== held.id) return;
    if (!held.carried && Math.hypot(event.clientX - held.x, event.clientY - held.y) >= FAR) begin();
    if (!held.carried) return;
    for (const target of tray.querySelectorAll(".target")) target.classList.toggle("over", target === over(event));
  });
  addEventListener("pointerup", (event) => {
    if (!held || event.pointerId !== held.id) return;
    const [target, { layers, carried }] = [held.carried ? over(event) : null, held];
    if (carried) addEventListener("click", (click) => click.stopPropagation(), { capture: true, once: true });
    if (carried) setTimeout(() => dispatchEvent(new Event("dragged")), 0);
    end();
    if (target) drop(layers, target.dataset.device);
  });
  addEventListener("pointercancel", () => held && end());
  addEventListener("keydown", (event) => event.key === "Escape" && held && end());
  return (event, layers) => {
    if (event.button !== 0 || event.pointerType === "touch" || !layers.length) return false;
    held = { id: event.pointerId, x: event.clientX, y: event.clientY, layers, carried: false };
    return true;
  };
}
