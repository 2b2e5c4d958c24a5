// The timeline: task names appear only where they fit, and the drawing may be wider than its box.
export function mountGantt(gantt, zoom) {
  const fit = () => {
    if (!gantt.isConnected || !gantt.clientWidth) return;
    for (const label of gantt.querySelectorAll("svg svg")) {
      const name = label.querySelector("text");
      name.style.visibility = name.getComputedTextLength() + 6 <= label.width.baseVal.value ? "visible" : "hidden";
    }
  };
  zoom.parentElement.hidden = false;
  zoom.addEventListener("input", () => {
    gantt.style.width = `${zoom.value * 100}%`;
    fit();
  });
  new ResizeObserver(fit).observe(gantt);
  fit();
}
