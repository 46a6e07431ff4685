"""A hook of mkdocs for what pages have besides text. Formulas, `$…$` in a line and `$$…$$` in lines of their own, are typeset by
KaTeX while the site is built: a browser needs its style sheet and fonts, no script and no network. Without the style sheet
it shows the formula's MathML. The search reads formulas as text, a/b for a fraction and x_i for an index. A formula with `\\tag{3}` is
equation 3 of its page and has the anchor #eq-3; tags count from 1. Without KaTeX (.ci/install course) pages show the TeX.
Figures lead to themselves: by a click they fill the window, and can be enlarged on a phone."""

import html
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

# What pymdownx.arithmatex makes of formulas.
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
PLACE = re.compile(r'([(\[]?)<(span|div) class="formula" data-formula="(\d+)"( id="eq-\d+")?>(.*?)</\2>([.,;:?!)\]]*)', re.DOTALL)
SHORT = 24  # characters: such a formula stays on one line with the marks around it
FIGURE = re.compile(r'<img alt="([^"]*)" src="([^"]+\.svg)" */?>')
MODULES = "/usr/share/nodejs:/usr/lib/nodejs"  # where Debian keeps node's packages
ASSETS = pathlib.Path("/usr/share/javascript/katex")  # style sheet and fonts, of package libjs-katex
STYLE = "katex/katex.min.css"

ACCENTS = {"^": "\u0302", "ˉ": "\u0304", "~": "\u0303", "˙": "\u0307"}  # and as combining characters

typeset = {}  # (TeX, displayed): its HTML
numbers = []  # what data-formula counts


def available():
    """Whether KaTeX can be run and its style sheet is there."""
    if not (ASSETS / "katex.min.css").exists():
        return False
    try:
        return isinstance(render([("x", False)])[0], str)
    except (OSError, subprocess.CalledProcessError):
        return False


def assets():
    """Style sheet and fonts as (path on the site, bytes)."""
    yield STYLE, (ASSETS / "katex.min.css").read_bytes()
    for font in sorted((ASSETS / "fonts").glob("*.woff2")):
        yield f"katex/fonts/{font.name}", font.read_bytes()


def render(formulas):
    path = os.pathsep.join(filter(None, [os.environ.get("NODE_PATH"), MODULES]))
    command = ["node", str(pathlib.Path(__file__).with_name("typeset.js"))]
    done = subprocess.run(command, input=json.dumps(formulas), capture_output=True, text=True, check=True, env=os.environ | {"NODE_PATH": path})
    return json.loads(done.stdout)


def linear(element):
    """MathML as text in one line: (a+b)/c, x_i^2, √(p−1)."""
    kind, parts = element.tag.rpartition("}")[2], [linear(child) for child in element]
    within = [part if len(part) < 2 or part.isalnum() else f"({part})" for part in parts]
    if kind == "mfrac":
        return "/".join(within)
    if kind in ("msqrt", "mroot"):
        return ("∛" if kind == "mroot" and parts[1] == "3" else "√") + (within[0] if len(parts) == 1 or kind == "mroot" else f"({''.join(parts)})")
    if kind in ("msub", "munder"):
        return f"{parts[0]}_{within[1]}"
    if kind == "msup":
        return parts[0] + (parts[1] if set(parts[1]) <= set("′") else f"^{within[1]}")
    if kind in ("msubsup", "munderover"):
        return f"{parts[0]}_{within[1]}^{within[2]}"
    if kind == "mover":
        return parts[0] + ACCENTS.get(parts[1], "")
    if kind in ("mspace", "mtd", "mo") and not parts and not (element.text or "").strip():
        return " "
    return (element.text or "") + "".join(parts)


def words(markup):
    """A formula as text for the search."""
    mathml = re.search(r"<math.*</math>", markup, re.DOTALL)
    text = linear(xml.fromstring(mathml[0])) if mathml else ""
    return html.escape(re.sub(r"\s+", " ", text.replace("\u2061", "").replace("\u200b", "")).strip(), quote=False)


def readable(markup):
    """Typeset HTML for a browser without style sheets as well: only the MathML is seen then, and never the TeX, which goes into an attribute."""
    markup = re.sub(r"<math ([^>]*)><semantics>(.*?)<annotation[^>]*>(.*?)</annotation></semantics>",
                    lambda m: f'<math {m[1]} alttext="{m[3].replace(chr(34), "&quot;")}">{m[2]}', markup, flags=re.DOTALL)
    return markup.replace('class="katex-html" aria-hidden="true"', 'class="katex-html" aria-hidden="true" hidden')


def refuse(page, why):
    from mkdocs.exceptions import PluginError  # here, as collect.py may run without mkdocs's modules
    raise PluginError(f"{page.file.src_path}: {why}")


def on_page_content(content, page, config, **_):
    """Formulas give way to places with their words, which the search reads; on_post_page puts the typeset ones there."""
    content = FIGURE.sub(r'<a class="figure" href="\2" title="Open the figure by itself"><img alt="\1" src="\2" /></a>', content)
    found = [(html.unescape(match[3]).strip(), match[2] == "[") for match in FORMULA.finditer(content)]
    tags = [int(tag) for tex, _ in found for tag in re.findall(r"\\tag\{(\d+)\}", tex)]
    if tags != list(range(1, len(tags) + 1)):
        refuse(page, f"equations are numbered {tags}, not from 1 on")
    known = STYLE in config["extra_css"]
    if known and (new := [formula for formula in dict.fromkeys(found) if formula not in typeset]):
        for formula, markup in zip(new, render(new)):
            if not isinstance(markup, str):
                refuse(page, f"{formula[0]}: {markup['error']}")
            typeset[formula] = readable(markup)
    formulas = iter(found)

    def place(match):
        formula = next(formulas)
        tag = re.search(r"\\tag\{(\d+)\}", formula[0])
        anchor = f' id="eq-{tag[1]}"' if tag else ""
        if not known:
            return f'<{match[1]} class="formula"{anchor}><code>{html.escape(formula[0])}</code></{match[1]}>'
        numbers.append(formula)
        return f'<{match[1]} class="formula" data-formula="{len(numbers) - 1}"{anchor}>{words(typeset[formula])}</{match[1]}>'

    return FORMULA.sub(place, content)


def on_post_page(output, **_):
    def put(match):
        before, kind, number, anchor, text, after = match.groups(default="")
        formula = f'<{kind} class="formula"{anchor}>{typeset[numbers[int(number)]]}</{kind}>'
        whole = kind == "span" and (before or after) and len(html.unescape(text)) <= SHORT
        return f'<span class="together">{before}{formula}{after}</span>' if whole else before + formula + after

    return PLACE.sub(put, output)


def without():
    """Says what the site goes without, in the way of tests/run."""
    print("  skipped: formulas are shown as TeX, for KaTeX is not installed (.ci/install course)", file=sys.stderr)
