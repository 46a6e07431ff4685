"""The API reference: a page for each folder of include/cairn, made from the comments in its headers."""

import html
import re

import headers


def prose(lines):
    """A comment as Markdown: paragraphs, lists, and what is indented as it stands."""
    out, form, text = [], None, []

    def close():
        nonlocal form, text
        if form == "pre":
            out.append("```text\n" + "\n".join(text).rstrip() + "\n```\n")
        elif form:
            tag = {"p": "<p>%s</p>", "li": "<ul><li>%s</li></ul>"}[form]
            out.append(tag % re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(" ".join(text), quote=False)) + "\n")
        form, text = None, []

    for line in lines:
        if not line.strip():
            close()
        elif line.startswith("- "):
            close()
            form, text = "li", [line[2:]]
        elif line.startswith("  ") and form != "li":
            if form != "pre":
                close()
            form = "pre"
            text.append(line[2:])
        else:
            if form == "pre" or form == "li" and not line.startswith("  "):
                close()
            form = form or "p"
            text.append(line.strip())
    close()
    return "\n".join(out)


def title_of(item):
    return f"{item.namespace.removeprefix('cairn').removeprefix('::')}::{item.name}".removeprefix("::") or item.name


def sentence(lines):
    """The first sentence of a comment."""
    text = []
    for line in lines:
        if not line.strip() or line.startswith("  "):
            break
        text.append(line.strip())
    return html.escape(re.split(r"(?<=[.:])\s", " ".join(text), maxsplit=1)[0].rstrip(":"), quote=False)


def page(folder, files, link):
    """Markdown of the page of one folder. link(path): how the page reaches a header's source."""
    parsed = [(path, headers.Header(path, path.read_text(encoding="utf-8"))) for path in files]
    out = [f"---\ntitle: {folder}\n---\n\n# {folder}\n", "| header | |\n|---|---|"]
    out += [f"| [{path.name}](#{path.stem}) | {sentence(header.head())} |" for path, header in parsed]
    used = {path.stem for path in files}
    for path, header in parsed:
        out.append(f"\n## {path.name} {{#{path.stem}}}\n\n{prose(header.head())}\n[Source]({link(path)})\n")
        groups = {}  # overloads stand together
        for item in header.items:
            groups.setdefault((title_of(item), item.kind == "class"), []).append(item)
        for (title, _), items in groups.items():
            anchor = base = path.stem + "-" + re.sub(r"[^\w-]+", "-", title)
            number = 2
            while anchor in used:
                anchor, number = f"{base}-{number}", number + 1
            used.add(anchor)
            escaped = html.escape(title, quote=False).replace("*", "&#42;").replace("~", "&#126;")
            out.append(f"### {escaped} {{#{anchor}}}\n")
            for item in items:
                out.append(prose(item.doc) + f"\n```cpp\n{header.synopsis(item)}\n```\n")
    return "\n".join(out) + "\n"
