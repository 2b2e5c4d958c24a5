// Text that is cut off or lies on other text: every visible word of the page, by the rectangles it is drawn in.
(() => {
  const found = [];
  const said = (e) => `${e.tagName.toLowerCase()}.${e.getAttribute("class") ?? ""} "${e.textContent.trim().slice(0, 40)}"`;
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) found.push(`the page is ${root.scrollWidth} wide, ${root.clientWidth} are there`);
  const scrolls = (style) => /auto|scroll/.test(`${style.overflowX} ${style.overflowY}`);
  const boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const own = node.parentElement;
    if (!node.textContent.trim() || own.closest("script, style, noscript, title, option") || !own.checkVisibility({ visibilityProperty: true })) continue;
    if (own.closest(".skip")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const inDrawing = own.closest("svg");
    // Of a map that is looked at from near, the part in sight.
    const sight = inDrawing?.classList.contains("near") ? inDrawing.getBoundingClientRect() : null;
    const within = (r) => !sight || (r.left >= sight.left && r.right <= sight.right && r.top >= sight.top && r.bottom <= sight.bottom);
    const rects = (inDrawing ? [own.getBoundingClientRect()] : [...range.getClientRects()])
      .filter((r) => r.width > 1 && r.height > 1 && within(r));
    // What contains the text: everything up to the first box that scrolls may clip it.
    for (let e = own; e && e !== document.body; e = e.parentElement) {
      const style = getComputedStyle(e);
      if (e instanceof SVGElement && e.tagName !== "svg") continue;
      if (scrolls(style)) break;
      const clips = style.overflowX === "hidden" || style.overflowX === "clip" || (e.tagName === "svg" && style.overflowX !== "visible");
      const b = e.getBoundingClientRect();
      for (const r of rects) {
        if (!clips || getComputedStyle(own).visibility === "hidden") continue;
        if (r.left < b.left - 1.5 || r.right > b.right + 1.5 || r.top < b.top - 3 || r.bottom > b.bottom + 3) {
          found.push(`${said(own)} is cut by ${e.tagName}.${e.getAttribute("class") ?? ""}`);
          break;
        }
      }
    }
    // A label of the map stays inside its own box.
    const holder = own.closest(".group, .box, .end");
    if (inDrawing?.classList.contains("network") && holder) {
      const frame = holder.querySelector(":scope > .frame, :scope > .card, :scope > .terminal").getBoundingClientRect();
      for (const r of rects) {
        if (r.left < frame.left - 1 || r.right > frame.right + 1 || r.top < frame.top - 4 || r.bottom > frame.bottom + 4) {
          found.push(`${said(own)} leaves its box`);
        }
      }
    }
    if (own.closest("#tip, .layer-card, [data-over]")) continue;
    for (const r of rects) boxes.push({ r, own });
  }
  // Overlaps, by a sweep from the top; lines of one text may touch.
  boxes.sort((a, b) => a.r.top - b.r.top);
  for (let i = 0; i < boxes.length; i += 1) {
    const a = boxes[i];
    for (let j = i + 1; j < boxes.length && boxes[j].r.top < a.r.bottom - 4; j += 1) {
      const b = boxes[j];
      if (a.own === b.own || a.own.contains(b.own) || b.own.contains(a.own)) continue;
      const across = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left);
      const down = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
      const sticky = a.own.closest("nav") || b.own.closest("nav");
      if (across > 2 && down > 4 && !sticky) found.push(`${said(a.own)} lies on ${said(b.own)}`);
    }
  }
  return found.slice(0, 40);
})();
