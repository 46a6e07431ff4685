"""A hook of mkdocs: pages that show a source file are not searched, the API reference has their names."""

import json
import pathlib


def on_post_build(config, **_):
    path = pathlib.Path(config["site_dir"]) / "search" / "search_index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    shown = {p.relative_to(config["docs_dir"]).with_suffix(".html").as_posix() for p in pathlib.Path(config["docs_dir"]).rglob("*.*.md")}
    index["docs"] = [entry for entry in index["docs"] if entry["location"].partition("#")[0] not in shown]
    path.write_text(json.dumps(index, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")
