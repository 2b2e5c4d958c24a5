"""What mkdocs.yml leaves to Python: pages from beside docs/, links that leave it, and files that no page needs."""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
BESIDE = {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}
"""Pages that are written from files beside docs/."""
NEEDLESS = ("**/*.map", "assets/javascripts/lunr", "sitemap.xml*", "search/search_index.json")
"""What debuggers, other languages and servers would want; pages opened as files read `search_index.js`."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from beside docs/, whose links begin there."""
    for page, source in BESIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        inside = re.sub(r"(?<!!)\[([^\]]+)\]\((?!docs/|\w+:|#)[^)\s]+\)", r"\1", text)  # words of links to what is no page
        files.append(File.generated(config, page, content=inside.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leave the words of a link to a file of the repository that is no page."""
    here = posixpath.dirname(page.file.src_uri)

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, found[2].partition("#")[0]))
        return found[1] if target.startswith("../") and "://" not in found[2] else found[0]

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", link, markdown)


@event_priority(-200)
def on_post_build(config: Any) -> None:
    """Remove what no page needs, after the search index became a script."""
    for pattern in NEEDLESS:
        for path in Path(config.site_dir).glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
