"""A hook of mkdocs for the search. Lectures and labs, not how the grader works, come before other pages, these before the API reference. Pages that
show a source file are not searched: the API reference has their names. And pages that are opened from the disk, where browsers let them fetch
nothing, get the index and its worker as a script, search/offline.js."""

import json
import pathlib
import re

OFFLINE = """// Read by pages that are opened from the disk.
__search.index = Promise.resolve(%s)
__search.worker = URL.createObjectURL(new Blob([%s], {type: "text/javascript"}))
"""

BOOSTS = [(r"lectures/|labs/(?!grader/)", 1e8), (r"(?!api/)", 1e4)]  # a match in a title counts 1000 times one in a text


def boost(location):
    return next((factor for pattern, factor in BOOSTS if re.match(pattern, location)), 1)


def boosted(worker):
    """The worker of the theme with the boosts of pages, which themes before 8.3 do not read."""
    if re.search(r"\bboost:\w+\.boost\b", worker):
        return worker
    worker, found = re.subn(r"for\(let (\w+) of (\w+)\)this\.add\(\1\)", r"for(let \1 of \2)this.add(\1,{boost:\1.boost})", worker)
    if found != 1:
        from mkdocs.exceptions import PluginError  # here, as tests run without mkdocs's modules
        raise PluginError("the theme's search worker adds pages otherwise than course/tools/search.py knows")
    return worker


def on_post_build(config, **_):
    site, docs = pathlib.Path(config["site_dir"]), pathlib.Path(config["docs_dir"])
    path = site / "search" / "search_index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    sources = {p.relative_to(docs).with_suffix(".html").as_posix() for p in docs.rglob("*.*.md")}  # ring.hpp.md
    index["docs"] = [entry for entry in index["docs"] if entry["location"].partition("#")[0] not in sources]
    for entry in index["docs"]:
        entry["boost"] = boost(entry["location"])
    text = json.dumps(index, separators=(",", ":"), ensure_ascii=False)
    path.write_text(text, encoding="utf-8")
    worker, = (site / "assets" / "javascripts" / "workers").glob("search.*.min.js")
    script = boosted(worker.read_text(encoding="utf-8"))
    worker.write_text(script, encoding="utf-8")
    (site / "search" / "offline.js").write_text(OFFLINE % (text, json.dumps(script)), encoding="utf-8")
