// The network as a map: pan, zoom, search. Groups open where their contents are large enough to read.
const LAYER = 100; // pixels that a layer needs to be shown by itself
const BLOCK = 74; // the same of a block
const LINE = 15; // pixels between lines of a closed group
const PHONE = 640; // pixels below which the tall drawing is used
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', sans-serif";

const widths = new Map();
const pen = document.createElement("canvas").getContext("2d");

function widthOf(text, pixels, weight) {
  const key = `${weight} ${text}`;
  if (!widths.has(key)) {
    pen.font = `${weight} 100px ${FONT}`;
    widths.set(key, pen.measureText(text).width);
  }
  return (widths.get(key) * pixels) / 100;
}

// Text without its middle, so that it is no wider than the room; nothing where hardly a letter would be left.
function fitted(text, room, pixels, weight) {
  if (widthOf(text, pixels, weight) <= room) return text;
  for (let kept = text.length - 1; kept > 3; kept -= 1) {
    const short = `${text.slice(0, Math.ceil((kept - 1) / 2))}…${text.slice(text.length - Math.floor((kept - 1) / 2))}`;
    if (widthOf(short, pixels, weight) <= room) return short;
  }
  return "";
}

const pair = (text) => text.split(" ").map(Number);

export function mountMap(root, details, select, before, grab) {
  const svg = root.querySelector("svg.network");
  const view = svg.querySelector(".view");
  const groups = [...svg.querySelectorAll(".group")];
  const leaves = [...svg.querySelectorAll(".box, .end")];
  const card = root.querySelector(".layer-card");
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let shape = "";
  let size = [1, 1];
  let at = { x: 0, y: 0, s: 1 };
  let least = 1;
  let moving = 0;

  const needed = (group) => (group.querySelector(":scope > .inner > .group") ? BLOCK : LAYER);

  const place = (element) => {
    let [x, y] = [0, 0];
    for (let e = element; e !== view; e = e.parentNode) {
      const [, dx, dy] = /translate\(([-\d.e]+) ([-\d.e]+)\)/.exec(e.getAttribute("transform") ?? "") ?? [0, 0, 0];
      x += Number(dx);
      y += Number(dy);
    }
    return { x, y, w: Number(element.dataset.w), h: Number(element.dataset.h) };
  };

  const chooseShape = () => {
    const wanted = svg.clientWidth < PHONE ? "tall" : "wide";
    if (wanted === shape) return;
    shape = wanted;
    size = pair(svg.dataset[shape]);
    for (const e of view.querySelectorAll("[data-wide]")) {
      const [x, y] = pair(e.dataset[shape]);
      e.setAttribute("transform", `translate(${x} ${y})`);
    }
    for (const e of view.querySelectorAll(":scope > .edges")) e.style.display = e.classList.contains(shape) ? "" : "none";
  };

  const label = (text, room, pixels, weight, words) => {
    const shown = fitted(words, room, pixels, weight);
    if (text.textContent !== shown) text.textContent = shown;
  };

  const refine = () => {
    const s = at.s;
    svg.style.setProperty("--inv", 1 / s);
    for (const group of groups) {
      const open = s * Number(group.dataset.least) >= needed(group);
      const [wide, high] = [Number(group.dataset.w) * s, Number(group.dataset.h) * s];
      const lines = Math.floor((high * 0.62 - 4) / LINE);
      group.classList.toggle("closed", !open);
      group.setAttribute("aria-expanded", String(open));
      const [name, one, two] = group.querySelectorAll(":scope > text");
      label(name, wide - 14, 13, 650, open ? name.dataset.open : name.dataset.closed);
      label(one, lines > 1 ? wide - 14 : 0, 11.5, 400, one.dataset.closed);
      label(two, lines > 2 ? wide - 14 : 0, 11.5, 400, two.dataset.closed);
    }
    const tight = s < 0.86;
    svg.classList.toggle("tight", tight);
    for (const leaf of leaves) {
      const end = leaf.classList.contains("end");
      const room = (Number(leaf.dataset.w) - (end ? 60 : 16)) * s;  // an end's rounded sides take room
      const [name, below] = [leaf.querySelector(".box-name"), leaf.querySelector(".box-op")];
      const pixels = tight ? 11 : 12.5 * s;
      label(name, s * 156 >= (end ? 40 : 56) ? room : 0, pixels, 650, name.dataset.full);
      label(below, tight ? 0 : room, 11 * s, 400, below.dataset.full);
    }
  };

  const draw = () => {
    view.setAttribute("transform", `translate(${at.x} ${at.y}) scale(${at.s})`);
    svg.classList.toggle("near", at.s > least * 1.02);
  };

  // Keep at least a corner of the map in sight.
  const bounded = ({ x, y, s }) => {
    const [w, h] = [svg.clientWidth, svg.clientHeight];
    s = Math.min(Math.max(s, least), 3);
    const hold = (offset, whole, part) => (whole <= part ? (part - whole) / 2
      : Math.min(Math.max(offset, part - whole), 0));
    return { x: hold(x, size[0] * s, w), y: hold(y, size[1] * s, h), s };
  };

  const move = (to, smoothly = false) => {
    cancelAnimationFrame(moving);
    const goal = bounded(to);
    if (!smoothly || still) {
      const zoomed = goal.s !== at.s;
      at = goal;
      draw();
      if (zoomed) refine();
      return;
    }
    const [from, began] = [at, performance.now()];
    const step = (now) => {
      const part = Math.min(1, (now - began) / 220);
      const ease = part * (2 - part);
      const s = from.s * (goal.s / from.s) ** ease;
      const share = goal.s === from.s ? ease : (s - from.s) / (goal.s - from.s);
      at = { x: from.x + (goal.x - from.x) * share, y: from.y + (goal.y - from.y) * share, s };
      draw();
      refine();
      if (part < 1) moving = requestAnimationFrame(step);
      else move(goal);
    };
    moving = requestAnimationFrame(step);
  };

  const fit = (smoothly = false) => {
    chooseShape();
    const whole = Math.min(svg.clientWidth / size[0], Math.max(300, innerHeight * (shape === "tall" ? 0.8 : 0.72)) / size[1], 1.1);
    svg.style.height = `${Math.max(220, Math.ceil(size[1] * whole) + 2)}px`;
    least = Math.min(svg.clientWidth / size[0], svg.clientHeight / size[1], 1.1);
    at = { ...at, s: 0 };
    move({ x: 0, y: 0, s: least }, false);
    if (smoothly) draw();
  };

  const zoom = (factor, x = svg.clientWidth / 2, y = svg.clientHeight / 2, smoothly = false) => {
    const s = Math.min(Math.max(at.s * factor, least), 3);
    move({ x: x - ((x - at.x) * s) / at.s, y: y - ((y - at.y) * s) / at.s, s }, smoothly);
  };

  const goTo = (element, smoothly = true) => {
    const { x, y, w, h } = place(element);
    const leaf = !element.classList.contains("group");
    const [wide, high] = [svg.clientWidth, svg.clientHeight];
    const inside = leaf ? 0 : needed(element) / Number(element.dataset.least);
    const s = leaf ? Math.max(at.s, 0.9) : Math.max(Math.min((wide - 24) / w, (high - 24) / h), inside * 1.01);
    move({ x: wide / 2 - (x + w / 2) * s, y: h * s > high ? 8 - y * s : high / 2 - (y + h / 2) * s, s }, smoothly);
  };

  const show = (leaf) => {
    const index = leaf.dataset.node;
    for (const other of svg.querySelectorAll(".chosen")) other.classList.remove("chosen");
    leaf.classList.add("chosen");
    const found = details[leaf.dataset.detail];
    if (!found) return void select?.(Number(index), null); // not known yet
    const heading = document.createElement("strong");
    heading.textContent = found[0];
    const close = document.createElement("button");
    close.type = "button";
    close.className = "close";
    close.textContent = "×";
    close.setAttribute("aria-label", "Close");
    close.addEventListener("click", hide);
    const list = document.createElement("dl");
    for (const [name, value] of found[1]) {
      const [term, words] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = name;
      words.textContent = value;
      list.append(term, words);
    }
    const row = document.createElement("a");
    row.href = `#layer-${index}`;
    row.textContent = "Its row in the table";
    card.replaceChildren(close, heading, list, row);
    card.hidden = false;
    const tip = document.getElementById("tip"); // which says less of the same
    if (tip) tip.hidden = true;
    select?.(Number(index), card);
  };

  const hide = () => {
    card.hidden = true;
    for (const other of svg.querySelectorAll(".chosen")) other.classList.remove("chosen");
    svg.focus();
    select?.(null, card);
  };

  // Pointers: one moves the map, two zoom it; what is not moved is selected.
  const held = new Map();
  let began = null;
  let moved = false;
  // What a drag may carry away: the chosen layer; where nothing can be moved, any layer or closed group.
  const carried = (target) => {
    const [closed, leaf] = [target.closest(".group.closed"), target.closest(".box")];
    if (leaf && (leaf.classList.contains("chosen") || !svg.classList.contains("near"))) return [Number(leaf.dataset.node)];
    return closed && !svg.classList.contains("near") ? [...closed.querySelectorAll(".box")].map((e) => Number(e.dataset.node)) : [];
  };
  svg.addEventListener("pointerdown", (event) => {
    if (!held.size && grab?.(event, carried(event.target))) return;
    held.set(event.pointerId, event);
    began = { ...at };
    moved = held.size > 1;
  });
  svg.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) return;
    if (held.size === 1) {
      const start = held.get(event.pointerId);
      const [dx, dy] = [event.clientX - start.clientX, event.clientY - start.clientY];
      if (!moved && Math.hypot(dx, dy) < 5) return;
      if (!moved) svg.setPointerCapture(event.pointerId);
      moved = true;
      move({ x: began.x + dx, y: began.y + dy, s: began.s });
      return;
    }
    const other = [...held.values()].find((e) => e.pointerId !== event.pointerId);
    const before = held.get(event.pointerId);
    const apart = (e) => Math.hypot(e.clientX - other.clientX, e.clientY - other.clientY);
    const box = svg.getBoundingClientRect();
    zoom(apart(event) / Math.max(1, apart(before)), (event.clientX + other.clientX) / 2 - box.left,
      (event.clientY + other.clientY) / 2 - box.top);
    held.set(event.pointerId, event);
    began = { ...at };
  });
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) {
    svg.addEventListener(end, (event) => {
      held.delete(event.pointerId);
      began = { ...at };
      for (const rest of held.values()) held.set(rest.pointerId, rest);
    });
  }
  svg.addEventListener("click", (event) => {
    event.preventDefault();
    if (moved) return void (moved = false);
    const closed = event.target.closest(".group.closed");
    const leaf = event.target.closest(".box");
    if (closed) goTo(closed);
    else if (leaf) show(leaf);
  });
  svg.addEventListener("dragstart", (event) => event.preventDefault());
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !svg.contains(document.activeElement)) return;
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0025)), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });

  // Keys: what is visible is walked through in order.
  const visible = () => [...groups, ...leaves.filter((leaf) => leaf.classList.contains("box"))]
    .filter((e) => !e.parentNode.closest(".group.closed") && (!e.classList.contains("group") || e.classList.contains("closed")))
    .sort((a, b) => (a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1));
  const step = (by) => {
    const all = visible();
    const now = all.indexOf(document.activeElement);
    const next = all[now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(now + by, 0), all.length - 1)];
    if (!next) return;
    next.focus({ preventScroll: true });
    const { x, y, w, h } = place(next);
    const [left, top] = [at.x + x * at.s, at.y + y * at.s];
    if (left < 0 || top < 0 || left + w * at.s > svg.clientWidth || top + h * at.s > svg.clientHeight) {
      move({ x: svg.clientWidth / 2 - (x + w / 2) * at.s, y: svg.clientHeight / 2 - (y + h / 2) * at.s, s: at.s }, true);
    }
  };
  const enter = (element) => {
    if (element.classList.contains("box")) return show(element);
    goTo(element, false);
    (element.querySelector(".inner > .group, .inner > .box") ?? element).focus({ preventScroll: true });
  };
  const leave = () => {
    if (!card.hidden) return hide();
    const inside = document.activeElement.closest?.(".group");
    const outer = inside?.parentNode.closest(".group");
    if (outer) goTo(outer);
    else fit();
    (inside ?? svg).focus({ preventScroll: true });
  };
  svg.addEventListener("keydown", (event) => {
    const focused = document.activeElement.closest(".group, .box");
    const act = {
      ArrowRight: () => step(1), ArrowDown: () => step(1), ArrowLeft: () => step(-1), ArrowUp: () => step(-1),
      Enter: () => (focused ? enter(focused) : step(1)), " ": () => focused && enter(focused), Escape: leave,
      "+": () => zoom(1.4), "=": () => zoom(1.4), "-": () => zoom(1 / 1.4), 0: () => fit(), Home: () => fit(),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  card.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });

  // Buttons and search.
  const tools = root.querySelector(".map-tools");
  const [find, told] = [tools.querySelector(".find"), tools.querySelector(".found")];
  let turn = -1;
  tools.hidden = false;
  for (const button of tools.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => ({ in: () => zoom(1.5, undefined, undefined, true),
      out: () => zoom(1 / 1.5, undefined, undefined, true), fit: () => fit() })[button.dataset.zoom]());
  }
  const hits = () => {
    const words = find.value.trim().toLowerCase();
    return words ? leaves.filter((leaf) => leaf.querySelector("title")?.textContent.toLowerCase().includes(words)) : [];
  };
  find.addEventListener("input", () => {
    const found = hits();
    turn = -1;
    svg.classList.toggle("searching", found.length > 0);
    for (const leaf of leaves) leaf.classList.toggle("hit", found.includes(leaf));
    for (const group of groups) group.classList.toggle("hit", found.some((leaf) => group.contains(leaf)));
    told.textContent = find.value.trim() ? `${found.length || "no"} layer${found.length === 1 ? "" : "s"}` : "";
  });
  find.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      find.value = "";
      find.dispatchEvent(new Event("input"));
    }
    const found = hits();
    if (event.key !== "Enter" || !found.length) return;
    turn = (turn + 1) % found.length;
    told.textContent = `${turn + 1} of ${found.length}`;
    goTo(found[turn]);
    show(found[turn]);
  });

  const seen = new ResizeObserver(() => {
    if (svg.clientWidth && Math.abs(svg.clientWidth - Number(svg.dataset.seen)) > 1) {
      svg.dataset.seen = svg.clientWidth;
      fit();
    }
  });
  svg.dataset.seen = svg.clientWidth;
  svg.removeAttribute("viewBox");
  fit();
  if (before?.shape === shape) move(before.at);
  seen.observe(svg);
  const whole = () => fit();
  addEventListener("beforeprint", whole);
  return {
    stop: () => {
      seen.disconnect();
      removeEventListener("beforeprint", whole);
    },
    where: () => ({ at, shape }),
    show: (index, there = true) => {
      const leaf = leaves.find((e) => e.dataset.node === String(index));
      if (leaf && there) goTo(leaf, false);
      if (leaf) show(leaf);
    },
  };
}
