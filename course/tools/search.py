"""A hook of mkdocs for the search. Pages that show a source file are not searched: the API reference has their names. And pages that are opened
from the disk, where browsers let them fetch nothing, get the index and its worker as a script, search/offline.js."""

import json
import pathlib

OFFLINE = """// Read by pages that are opened from the disk.
__search.index = Promise.resolve(%s)
__search.worker = URL.createObjectURL(new Blob([%s], {type: "text/javascript"}))
"""


def on_post_build(config, **_):
    site, docs = pathlib.Path(config["site_dir"]), pathlib.Path(config["docs_dir"])
    path = site / "search" / "search_index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    sources = {p.relative_to(docs).with_suffix(".html").as_posix() for p in docs.rglob("*.*.md")}  # ring.hpp.md
    index["docs"] = [entry for entry in index["docs"] if entry["location"].partition("#")[0] not in sources]
    text = json.dumps(index, separators=(",", ":"), ensure_ascii=False)
    path.write_text(text, encoding="utf-8")
    worker, = (site / "assets" / "javascripts" / "workers").glob("search.*.min.js")
    (site / "search" / "offline.js").write_text(OFFLINE % (text, json.dumps(worker.read_text(encoding="utf-8"))), encoding="utf-8")
