// The plan's table: groups open and close, columns sort. Sorted, layers stand without their groups.
// `before` is what was mounted in its place: groups stay open, and columns sorted.
export function mountTable(table, before) {
  const body = table.tBodies[0];
  const inOrder = [...body.rows];
  const groups = inOrder.filter((row) => row.dataset.group);
  const layers = inOrder.filter((row) => !row.dataset.group);
  const open = new Set(before?.open);
  const headings = [...table.tHead.rows[0].cells];
  let sorted = false;

  const show = () => {
    for (const row of inOrder) {
      const above = (row.dataset.in ?? "").split(" ").filter(Boolean);
      row.hidden = sorted ? Boolean(row.dataset.group) : above.some((name) => !open.has(name));
    }
    for (const row of groups) row.querySelector("button").setAttribute("aria-expanded", String(open.has(row.dataset.group)));
  };
  const reveal = (row) => {
    for (const name of (row.dataset.in ?? "").split(" ").filter(Boolean)) open.add(name);
    show();
  };
  for (const row of groups) {
    row.querySelector("button").addEventListener("click", () => {
      const name = row.dataset.group;
      if (!open.delete(name)) open.add(name);
      show();
    });
  }

  // First select ascending, second descending, third the network's order. Rows without a value stay last.
  const key = (row, column, numeric) => {
    const cell = row.children[column];
    if (!numeric) return cell.textContent.trim();
    return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
  };
  const sort = (column, way) => {
    const heading = headings[column];
    const numeric = heading.classList.contains("num");
    const sign = way === "descending" ? -1 : 1;
    sorted = way !== "none" && { column, way };
    body.append(...(sorted ? [...layers].sort((a, b) => {
      const [x, y] = [key(a, column, numeric), key(b, column, numeric)];
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (numeric ? x - y : x.localeCompare(y, "en", { numeric: true }));
    }) : inOrder));
    for (const other of headings) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", way);
    show();
  };
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      sort(column, { none: "ascending", ascending: "descending", descending: "none" }[heading.getAttribute("aria-sort")]);
    });
  });
  const all = table.closest("section")?.querySelector(".open-all");
  if (all && groups.length) {
    all.hidden = false;
    all.addEventListener("click", () => {
      const opening = open.size < groups.length;
      open.clear();
      if (opening) for (const row of groups) open.add(row.dataset.group);
      all.textContent = opening ? "Close all groups" : "Open all groups";
      show();
    });
  }
  const whole = () => {
    if (layers.length > 200) return;
    for (const row of groups) open.add(row.dataset.group);
    show();
  };
  addEventListener("beforeprint", whole);
  const order = before?.sorted();
  if (order) sort(order.column, order.way);
  else show();
  return {
    open,
    sorted: () => sorted,
    stop: () => removeEventListener("beforeprint", whole),
    reveal: (index) => {
      const row = layers.find((r) => r.dataset.node === String(index));
      if (row) reveal(row);
      return row;
    },
  };
}
