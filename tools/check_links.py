"""Links within the built site: every page, file and anchor that a page names is there.

    .venv-docs/bin/python tools/check_links.py [folder]

Sphinx warns about the links that it makes itself; this reads what came out, so that HTML, pictures
and tables of contents are seen too. Links to other sites are left to ``make docs-links``.
"""

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).parent.parent / "docs" / "_build" / "html"
#: sources, whose links back to the reference have the module of Sphinx's choice, and themes
NO_PAGES = {"_modules", "_static"}


class Page(HTMLParser):
    """Anchors of a page, and what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note names and addresses."""
        for name, value in attrs:
            if not value:
                continue
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)
            elif name in ("href", "src"):
                self.links.add(value)


@cache
def read(path: Path) -> Page:
    """Read a page, once."""
    return Page(path.read_text())


def broken(path: Path, link: str) -> bool:
    """Whether a page links to something within the site that is not there."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return True
    anchor = unquote(parts.fragment)
    return bool(anchor) and target.suffix == ".html" and anchor not in read(target).anchors


def main() -> int:
    """Print what leads nowhere."""
    site = Path(sys.argv[1] if len(sys.argv) > 1 else SITE).resolve()
    pages = sorted(p for p in site.rglob("*.html") if p.relative_to(site).parts[0] not in NO_PAGES)
    links = [(path, link) for path in pages for link in sorted(read(path).links)]
    wrong = [f"{path.relative_to(site)}: {link}" for path, link in links if broken(path, link)]
    print("\n".join(wrong) or f"{len(pages)} pages, {len(links)} links: all here lead on")
    return not pages or bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
