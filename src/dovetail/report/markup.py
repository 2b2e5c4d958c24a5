"""HTML and SVG from Python, escaped by construction: only what `element` made is ever taken as markup."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable

VOID = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "wbr"})
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\u202a-\u202e\u2066-\u2069]")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Anything as inert text: escaped, with characters that HTML forbids or that reorder a line replaced."""
    return value if isinstance(value, Markup) else Markup(html.escape(_UNPRINTABLE.sub("\ufffd", str(value)), quote=True))


def join(children: Iterable[object]) -> Markup:
    """Children one after another: None is nothing, lists and tuples are opened, the rest is text."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, list | tuple):
            parts.append(join(child))
        elif child is not None:
            parts.append(text(child))
    return Markup("".join(parts))


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """One element. `class_` means class, `data_node` means data-node; None leaves an attribute out, True states it bare."""
    opened = [tag]
    for key, value in attributes.items():
        if value is not None and value is not False:
            name = key.rstrip("_").replace("_", "-")
            opened.append(name if value is True else f'{name}="{text(value)}"')
    start = f"<{' '.join(opened)}>"
    return Markup(start if tag in VOID else f"{start}{join(children)}</{tag}>")


def centred(words: object, x: object, y: object, class_: str) -> Markup:
    """Words of a drawing around a place."""
    return element("text", words, x=x, y=y, text_anchor="middle", class_=class_)


def ornament(class_: str, width: str, height: str, *children: object) -> Markup:
    """A small drawing beside words that say the same: nothing for who listens or moves by keys."""
    return element("svg", *children, class_=class_, width=width, height=height, aria_hidden="true", focusable="false")


def breakable(name: str) -> Markup:
    """A long name that may break after its separators."""
    return join([part, element("wbr")] if i % 2 else part for i, part in enumerate(re.split(r"([._/:\-]+)", name)))


def embedded_json(value: object) -> Markup:
    """JSON that can stand inside a script element: no `<` is left in it, so nothing can close the element or open a comment."""
    plain = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def table(caption: str, head: Iterable[object], rows: Iterable[Iterable[object]], *, numeric: Iterable[int] = (),
          class_: str | None = None) -> Markup:
    """A captioned table in a box that scrolls sideways; the first cell of a row is its heading."""
    right = set(numeric)
    kind = ["num" if i in right else None for i in range(64)]
    body = [
        element(
            "tr", [element("td", cell, class_=kind[i]) if i else element("th", cell, scope="row") for i, cell in enumerate(row)]
        )
        for row in rows
    ]
    return scroller(
        caption,
        element("table", element("caption", caption),
                element("thead", element("tr", [element("th", h, scope="col", class_=kind[i]) for i, h in enumerate(head)])),
                element("tbody", body), class_=class_),
    )


def scroller(label: str, *children: object) -> Markup:
    """A box that scrolls sideways on its own, reachable by keyboard."""
    return element("div", *children, class_="scroll", tabindex="0", role="region", aria_label=label)


def section(ident: str, title: str, *children: object) -> Markup:
    return element("section", element("h2", title, id=f"{ident}-title"), *children, id=ident, aria_labelledby=f"{ident}-title")


def not_run(what: str, command: str | None = None) -> Markup:
    """Says that something is missing, and the command that makes it."""
    how = [" Run ", element("code", command), " to get it."] if command else []
    return element("p", element("strong", "Not run. "), what, *how, class_="absent")
