// Details of the layer or task under the pointer or with the focus. Text goes in as text, never as markup.
export function mountTips(root, tip, details) {
  const fill = (title, lines) => {
    const heading = document.createElement("strong");
    heading.textContent = title;
    const list = document.createElement("dl");
    for (const [label, value] of lines) {
      const term = document.createElement("dt");
      term.textContent = label;
      const words = document.createElement("dd");
      words.textContent = value;
      list.append(term, words);
    }
    tip.replaceChildren(heading, list);
  };

  const place = (target) => {
    const box = target.getBoundingClientRect();
    const room = document.documentElement;
    const width = tip.offsetWidth;
    const left = Math.min(Math.max(8, box.left + box.width / 2 - width / 2), room.clientWidth - width - 8);
    const below = box.bottom + 10;
    const top = below + tip.offsetHeight > room.clientHeight ? Math.max(8, box.top - tip.offsetHeight - 10) : below;
    tip.style.left = `${left + window.scrollX}px`;
    tip.style.top = `${top + window.scrollY}px`;
  };

  const light = (node, on) => {
    if (node === undefined) return;
    for (const same of root.querySelectorAll(`[data-node="${node}"]`)) same.classList.toggle("lit", on);
  };

  const show = (target) => {
    const found = details[target.dataset.detail];
    if (!found) return;
    fill(found[0], found[1]);
    tip.hidden = false;
    place(target);
    light(target.dataset.node, true);
  };

  const hide = (target) => {
    tip.hidden = true;
    light(target.dataset.node, false);
  };

  for (const target of root.querySelectorAll("[data-detail]")) {
    target.addEventListener("pointerenter", () => show(target));
    target.addEventListener("pointerleave", () => hide(target));
    target.addEventListener("focus", () => show(target));
    target.addEventListener("blur", () => hide(target));
    target.addEventListener("click", () => hide(target));
  }
}
