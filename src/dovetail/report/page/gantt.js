// The timeline: names of tasks and frames appear only where they fit, and drawings may be wider than their box.
export function mountGantt(drawings, zoom) {
  const fit = () => {
    for (const drawing of drawings) {
      if (!drawing.isConnected || !drawing.clientWidth) continue;
      for (const label of drawing.querySelectorAll("svg svg")) {
        const name = label.querySelector("text");
        name.style.visibility = name.getComputedTextLength() + 6 <= label.width.baseVal.value ? "visible" : "hidden";
      }
    }
  };
  zoom.parentElement.hidden = false;
  const widen = () => {
    for (const drawing of drawings) drawing.style.width = `${zoom.value * 100}%`;
    fit();
  };
  zoom.addEventListener("input", widen);
  const seen = new ResizeObserver(fit);
  for (const drawing of drawings) seen.observe(drawing);
  widen();
}
