"""``python docs/check_links.py SITE``: links inside a built site lead to pages and anchors."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The links and the anchors of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what links, and what can be linked to."""
        for name, value in attrs:
            if value is not None and name in ("href", "src"):
                self.links.append(value)
            elif value is not None and name in ("id", "name"):
                self.anchors.add(value)


def broken_links(site: Path) -> list[str]:
    """Return a line for each link that leads nowhere; links to other hosts are not followed."""
    files = [path.resolve() for path in site.rglob("*.html") if "_static" not in path.parts]
    pages = {path: _Page(path) for path in files}
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            missing = not target.exists()
            if missing or (target in pages and anchor not in pages[target].anchors):
                found.append(f"{path.relative_to(site.resolve())}: {link}")
    return found


if __name__ == "__main__":
    lines = broken_links(Path(sys.argv[1]))
    print("\n".join(lines) or "every internal link leads somewhere")
    sys.exit(bool(lines))
