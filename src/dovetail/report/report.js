"use strict";
(() => {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const tip = document.getElementById("tip");

  // Details of the layer or task under the pointer or with the focus. Text goes in as text, never as markup.
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
    for (const same of document.querySelectorAll(`[data-node="${node}"]`)) same.classList.toggle("lit", on);
  };

  const show = (target) => {
    const details = data.details[target.dataset.detail];
    if (!details) return;
    fill(details[0], details[1]);
    tip.hidden = false;
    place(target);
    light(target.dataset.node, true);
  };

  const hide = (target) => {
    tip.hidden = true;
    light(target.dataset.node, false);
  };

  for (const target of document.querySelectorAll("[data-detail]")) {
    target.addEventListener("pointerenter", () => show(target));
    target.addEventListener("pointerleave", () => hide(target));
    target.addEventListener("focus", () => show(target));
    target.addEventListener("blur", () => hide(target));
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") tip.hidden = true;
  });

  // Sorting: first select ascending, second descending. Rows without a value stay last either way.
  const key = (row, column, numeric) => {
    const cell = row.children[column];
    if (!numeric) return cell.textContent.trim();
    return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      heading.querySelector("button").addEventListener("click", () => {
        const down = heading.getAttribute("aria-sort") === "ascending";
        const numeric = heading.classList.contains("num");
        const sign = down ? -1 : 1;
        const rows = [...table.tBodies[0].rows].sort((a, b) => {
          const x = key(a, column, numeric);
          const y = key(b, column, numeric);
          if (x === null || y === null) return (x === null) - (y === null);
          return sign * (numeric ? x - y : x.localeCompare(y, "en", { numeric: true }));
        });
        table.tBodies[0].append(...rows);
        for (const other of headings) other.setAttribute("aria-sort", "none");
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      });
    });
  }

  // Task names appear only where they fit.
  const gantt = document.getElementById("gantt");
  const fit = () => {
    for (const label of gantt.querySelectorAll("svg svg")) {
      const name = label.querySelector("text");
      name.style.visibility = name.getComputedTextLength() + 6 <= label.width.baseVal.value ? "visible" : "hidden";
    }
  };
  if (gantt) {
    const zoom = document.getElementById("zoom");
    zoom.parentElement.hidden = false;
    zoom.addEventListener("input", () => {
      gantt.style.width = `${zoom.value * 100}%`;
      fit();
    });
    window.addEventListener("resize", fit);
    fit();
  }

  window.addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("details")) folded.open = true;
  });
  document.documentElement.dataset.ready = "true";
})();
