#!/usr/bin/env python3
"""Every link inside of the built site leads to a file, every anchor to an element, and nothing is fetched from elsewhere.

    course/tools/check_links.py SITE
"""

import html.parser
import pathlib
import re
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids |= {attributes[key] for key in ("id", "name") if attributes.get(key) and (key == "id" or tag == "a")}
        for key in ("href", "src"):
            if attributes.get(key) is None:
                continue
            if tag == "a":
                self.links.append(attributes[key])
            elif tag != "link" or attributes.get("rel") != "canonical":
                self.loaded.append(attributes[key])


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    faults, count = [], 0
    for path, page in pages.items():
        for link in page.links + page.loaded:
            where = urllib.parse.urlsplit(link)
            if where.scheme or where.netloc:
                if link in page.loaded and where.scheme != "data":
                    faults.append(f"{path.relative_to(site)}: loads {link}, which needs the network")
                continue
            count += 1
            name = urllib.parse.unquote(where.path)
            target = (site / name.lstrip("/") if name.startswith("/") else path.parent / name).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            part = urllib.parse.unquote(where.fragment)
            if not target.is_relative_to(site) or not target.exists():
                faults.append(f"{path.relative_to(site)}: links to {link}, which is not there")
            elif part and target in pages and part not in pages[target].ids:
                faults.append(f"{path.relative_to(site)}: links to {link}; {target.relative_to(site)} has no #{part}")
    for path in site.rglob("*.css"):
        for url in re.findall(r"url\(\s*[\"']?(https?:[^)\"']+)", path.read_text(encoding="utf-8")):
            faults.append(f"{path.relative_to(site)}: loads {url}, which needs the network")
    print("\n".join([*sorted(set(faults)), f"{len(pages)} pages, {count} links, {len(set(faults))} dead"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
