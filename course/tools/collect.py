#!/usr/bin/env python3
"""Collects the pages of the course into one folder that mkdocs can build.

    course/tools/collect.py OUT        writes OUT/docs and OUT/mkdocs.yml

- Pages come from anywhere in the repository; course/mkdocs.yml names them in its navigation, with * for all that match. course/X becomes X of the
  site, everything else keeps its path. So do pages that others link to.
- Code is put where pages name it (snippets.py), figures are made (course/figures/NAME.py draws NAME.svg), the API reference is made (api.py).
- A link to a file of the repository leads to its page, to its page of the API, or to a page that shows its source; what students do not get
  (solutions, hidden tests, notes for instructors) becomes plain text. A link to nothing is an error.
"""

import pathlib
import posixpath
import re
import subprocess
import sys

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import api  # noqa: E402
import formulas  # noqa: E402
import snippets  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"`[^`\n]*`|(!?)\[((?:`[^`\n]*`|[^\[\]`])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^([ \t]*)(```+|~~~+).*?^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".hpp": "cpp", ".cpp": "cpp", ".cu": "cpp", ".cuh": "cpp", ".py": "python", ".toml": "toml", ".cmake": "cmake", ".sh": "sh"}
SHOWN = 200_000  # bytes: larger files are copied, not shown


def title(text, otherwise):
    found = re.search(r"^# (.+)$", FENCE.sub("", text), re.MULTILINE)
    return found[1].replace("`", "") if found else otherwise


class Collection:
    def __init__(self, out):
        self.out, self.docs = out, out / "docs"
        self.written, self.queue, self.faults = set(), [], []

    def write(self, path, data):
        target = self.docs / path
        target.parent.mkdir(parents=True, exist_ok=True)
        data = data if isinstance(data, bytes) else data.encode()
        if not target.exists() or target.read_bytes() != data:
            target.write_bytes(data)
        self.written.add(target)

    # ------------------------------------------------------------------------------------ where things are on the site
    @staticmethod
    def local(path):
        """A path of the repository as a path of the site. mkdocs leaves out what begins with a dot."""
        return "repository.md" if path == "README.md" else re.sub(r"(^|/)\.", r"\1", path.removeprefix("course/"))

    def place(self, path):
        """The site's file for a file or folder of the repository, which is then collected; None: not for students."""
        local, full = self.local(path), ROOT / path
        if figure := re.fullmatch(r"course/figures/([\w-]+)\.svg", path):
            self.queue.append(("figure", f"course/figures/{figure[1]}.py"))
            return local if (ROOT / f"course/figures/{figure[1]}.py").exists() else ""
        if not full.exists():
            return ""
        if snippets.WITHHELD.match(path + ("/" if full.is_dir() else "")):
            return None
        if full.is_dir():
            for name in ("index.md", "README.md"):
                if (full / name).exists():
                    return self.place(posixpath.normpath(posixpath.join(path, name)))
            if path == "include/cairn" or path.startswith("include/cairn/"):
                return self.api_page(path)
            self.queue.append(("folder", path))
            return posixpath.join(local, "index.md")
        if full.suffix == ".md":
            self.queue.append(("page", path))
            return local
        shown = full.stat().st_size < SHOWN and full.suffix != ".json"
        self.queue.append(("source" if shown else "file", path))
        return local + ".md" if shown else local

    @staticmethod
    def api_page(folder):
        return "api/" + (posixpath.relpath(folder, "include/cairn") + ".md").replace("./", "").replace("..md", "index.md")

    def link(self, path, here):
        """From page `here` of the site to a file of the repository; None, or empty, as in place."""
        place = self.place(path)
        return posixpath.relpath(place, posixpath.dirname(here)) if place else place

    # ------------------------------------------------------------------------------------------- what is collected
    def rewritten(self, text, path, here):
        def replace(match):
            if match[3] is None:  # code
                return match[0]
            target, mark, part = match[3].partition("#")
            if not target or re.match(r"[a-z]+:", target):
                return match[0]
            link = self.link(posixpath.normpath(posixpath.join(posixpath.dirname(path), target)), here)
            if link == "":
                self.faults.append(f"{path}: links to {match[3]}, which does not exist")
            return f"{match[1]}[{match[2]}]({link}{mark}{part})" if link else match[2]

        out, at = [], 0
        for fence in FENCE.finditer(text):
            out += [LINK.sub(replace, text[at:fence.start()]), fence[0]]
            at = fence.end()
        return "".join(out) + LINK.sub(replace, text[at:])

    def page(self, path):
        here = self.local(path)
        try:
            text = snippets.expand(ROOT, (ROOT / path).read_text(encoding="utf-8"))
        except snippets.SnippetError as error:
            self.faults.append(f"{path}: {error}")
            return
        self.write(here, self.rewritten(text, path, here))

    def source(self, path):
        full, here = ROOT / path, self.local(path) + ".md"
        text = full.read_text(encoding="utf-8")
        fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
        language = LANGUAGES.get(full.suffix, "python" if text.startswith("#!/usr/bin/env python3") else "sh" if text.startswith("#!") else "text")
        about = ""
        if path.startswith("include/cairn/"):
            folder = posixpath.relpath(self.api_page(posixpath.dirname(path)), posixpath.dirname(here))
            about = f"[API reference]({folder}#{full.stem})\n\n"
        self.write(here, f"---\ntitle: {path}\n---\n\n# {full.name}\n\n{about}`{path}`\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n")

    def file(self, path):
        self.write(self.local(path), (ROOT / path).read_bytes())

    def folder(self, path):
        here = posixpath.join(self.local(path), "index.md")
        lines = [f"# {path}\n"]
        for entry in sorted((ROOT / path).iterdir()):
            if entry.suffix == ".md":
                name = title(entry.read_text(encoding="utf-8"), entry.name)
                lines.append(f"- [{name}]({self.link(posixpath.join(path, entry.name), here)})")
            elif not entry.name.startswith((".", "__")):
                lines.append(f"- `{entry.name}{'/' if entry.is_dir() else ''}`")
        self.write(here, "\n".join(lines) + "\n")

    def figure(self, path):
        """Drawn again when a script or a record has changed."""
        script, drawn = ROOT / path, self.out / "figures" / (pathlib.Path(path).stem + ".svg")
        newest = max(p.stat().st_mtime for p in (*script.parent.glob("*.py"), *(ROOT / "reference").glob("*.json")))
        if not drawn.exists() or drawn.stat().st_mtime < newest:
            drawn.parent.mkdir(parents=True, exist_ok=True)
            done = subprocess.run([sys.executable, script, drawn], capture_output=True, text=True)
            if done.returncode or not drawn.exists():
                self.faults.append(f"{path} draws nothing:\n{done.stderr}")
                return
        self.write(f"figures/{drawn.name}", drawn.read_bytes())

    def reference(self):
        """All pages of the API; returns their part of the navigation."""
        top = ROOT / "include" / "cairn"
        folders = sorted({path.parent for path in top.rglob("*.hpp")} - {top})
        names = [folder.relative_to(top).as_posix() for folder in folders]
        for folder, name in zip(folders, names):
            here = self.api_page(f"include/cairn/{name}")
            files = sorted(folder.glob("*.hpp"))
            self.write(here, api.page(f"cairn/{name}", files, lambda p, here=here: self.link(p.relative_to(ROOT).as_posix(), here)))
        lines = ["# API reference\n", "Made from the comments in the headers. `#include <cairn/cairn.hpp>` brings all of it but data formats and MPI.\n",
                 "| folder | headers |\n|---|---|"]
        lines += [f"| [cairn/{name}]({name}.md) | {', '.join(p.stem for p in sorted(folder.glob('*.hpp')))} |" for folder, name in zip(folders, names)]
        self.write("api/index.md", "\n".join(lines) + "\n")
        return ["api/index.md", *({f"cairn/{name}": f"api/{name}.md"} for name in names)]

    # ------------------------------------------------------------------------------------------- all of it
    def navigation(self, entries):
        out = []
        for entry in entries:
            if isinstance(entry, dict):
                (name, value), = entry.items()
                out.append({name: self.navigation(value) if isinstance(value, list) else self.place(value)})
            elif entry == "api":
                out += self.reference()
            else:
                paths = [p.relative_to(ROOT).as_posix() for p in sorted(ROOT.glob(entry))]
                if not paths:
                    self.faults.append(f"course/mkdocs.yml: there is no page {entry}")
                out += [{title((ROOT / path).read_text(encoding="utf-8"), path): self.place(path)} for path in paths]
        return out

    def run(self):
        config = yaml.safe_load((ROOT / "course" / "mkdocs.yml").read_text(encoding="utf-8"))
        config["nav"] = self.navigation(config["nav"])
        theme = ROOT / "course" / "theme"
        self.write("extra.css", (theme / "extra.css").read_bytes())
        if formulas.available():
            for path, data in formulas.assets():
                self.write(path, data)
            config["extra_css"].insert(0, formulas.STYLE)
        else:
            formulas.without()
        done = set()
        while self.queue:
            job = self.queue.pop()
            if job not in done:
                done.add(job)
                getattr(self, job[0])(job[1])
        for old in self.docs.rglob("*"):
            if old.is_file() and old not in self.written:
                old.unlink()
        config |= {"docs_dir": "docs", "site_dir": "site", "hooks": [str(ROOT / "course" / "tools" / name) for name in ("formulas.py", "search.py")]}
        config["theme"]["custom_dir"] = str(theme / "overrides")
        (self.out / "mkdocs.yml").write_text(yaml.safe_dump(config, allow_unicode=True, sort_keys=False))
        print(f"{len(self.written)} files collected" + "".join(f"\n{fault}" for fault in self.faults))
        return 1 if self.faults else 0


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[1]).resolve()
    (where / "docs").mkdir(parents=True, exist_ok=True)
    sys.exit(Collection(where).run())
