"""Screenshots of the built site, at desktop and phone width, light and dark; broken layout.

    .venv-docs/bin/python tools/screenshots.py [page ...] [--site folder] [--out folder]

Needs `make docs`, Chromium (/usr/bin/chromium, or CHROMIUM) and the extra `screenshots`. Pages are
names such as ``index`` or ``gallery/first_posterior``; without any, all pages but the reference's
are taken. What is wider than its page and pictures that did not load are printed, and make the exit
code 1.
"""

import argparse
import functools
import os
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

SITE = Path(__file__).parent.parent / "docs" / "_build" / "html"
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}
#: elements that stick out to the right of the window, unless something around them scrolls
STICKS_OUT = """() => [...document.querySelectorAll('article *')].filter(e => {
    const box = e.getBoundingClientRect();
    if (box.width === 0 || box.right <= window.innerWidth + 1) return false;
    for (let a = e.parentElement; a; a = a.parentElement)
        if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(a).overflowX)) return false;
    return true;
}).map(e => e.tagName + '.' + e.className).slice(0, 5)"""
NOT_LOADED = "() => [...document.images].filter(i => !i.naturalWidth).map(i => i.src)"


class Quiet(SimpleHTTPRequestHandler):
    """Serve files without a line for each."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def take(browser: Browser, address: str, page: str, out: Path) -> list[str]:
    """Take a page four times; return what is wrong with it."""
    wrong = []
    for name, (width, height) in WIDTHS.items():
        for scheme in ("light", "dark"):
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            # formulas are typeset by a script of another host: do not wait for it
            tab.route("**/*", lambda r: r.continue_() if address in r.request.url else r.abort())
            tab.goto(f"{address}/{page}.html")
            where = f"{page}, {name}, {scheme}"
            wrong += [f"{where}: {found} sticks out" for found in tab.evaluate(STICKS_OUT)]
            wrong += [f"{where}: {found} did not load" for found in tab.evaluate(NOT_LOADED)]
            file = out / f"{page.replace('/', '_')}_{name}_{scheme}.png"
            tab.screenshot(path=file, full_page=True)
            tab.close()
    return wrong


def main() -> int:
    """Serve the site on this machine, and take what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--site", type=Path, default=SITE)
    parser.add_argument("--out", type=Path, default=SITE.parent / "screenshots")
    options = parser.parse_args()
    found = (path.relative_to(options.site) for path in options.site.rglob("*.html"))
    pages = options.pages or sorted(
        str(path.with_suffix(""))
        for path in found
        if path.parts[0] not in {"reference", "_modules", "_static"}
    )
    options.out.mkdir(parents=True, exist_ok=True)
    handler = functools.partial(Quiet, directory=str(options.site))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", "--no-first-run"]
    with sync_playwright() as play:
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = play.chromium.launch(executable_path=chromium, args=flags)
        wrong = [found for page in pages for found in take(browser, address, page, options.out)]
        browser.close()
    print("\n".join(wrong) or f"{len(pages)} pages in {options.out}: nothing sticks out")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
