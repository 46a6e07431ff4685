#!/usr/bin/env python3
"""Checks what the site of the course is made with (course/tools): the scanner of headers, snippets, and the check of links."""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "course" / "tools"))
import formulas  # noqa: E402
import headers  # noqa: E402
import search  # noqa: E402
import snippets  # noqa: E402

HEADER = """#pragma once
// What it is.

#include <vector>

namespace cairn {

/// Of one rank.
struct counts {
    int messages = 0;  // sent
};

namespace detail {
inline int hidden() { return 0; }
}  // namespace detail

/// Made by somebody.
template <class T>
    requires requires(T t) { t.size(); }
class box : public base<T> {
    int first_ = 1'000;

public:
    explicit box(int n) : first_{n}, all_(n) { all_.push_back("}"); }
    /// How many.
    int size() const { return first_; }
    struct inner {
        int get() const { return 1; }
    };

private:
    std::vector<const char*> all_;
};

inline constexpr int most = (1 << 15) - 1;
#if SOMETHING
inline int f() {
#else
inline int f(int) {
#endif
    return 0;
}
bool operator==(const counts& a, const counts& b);

}  // namespace cairn
"""


def check(condition, what):
    if not condition:
        sys.exit(f"site_check: {what}")


def scanner():
    header = headers.Header("sample.hpp", HEADER)
    check([(i.kind, i.name) for i in header.items] == [("class", "counts"), ("class", "box"), ("variable", "most"), ("function", "f"), ("function", "operator==")],
          f"items {[(i.kind, i.name) for i in header.items]}")
    check(header.head() == ["What it is."] and header.items[0].doc == ("Of one rank.",), "comments")
    check(header.synopsis(header.items[1]) == """template <class T>
    requires requires(T t) { t.size(); }
class box : public base<T> {
public:
    explicit box(int n);
    /// How many.
    int size() const;
    struct inner {
        int get() const;
    };
};""", f"synopsis\n{header.synopsis(header.items[1])}")
    check("int messages = 0;  // sent" in header.synopsis(header.items[0]), "comments behind members stay")
    try:
        headers.Header("broken.hpp", "namespace cairn {\nint f() {\n}}}\n")
        check(False, "unbalanced braces were not noticed")
    except SystemExit as error:
        check("broken.hpp:3" in str(error), f"the message {error}")
    for path in sorted((ROOT / "include").rglob("*.hpp")):
        headers.Header(path, path.read_text(encoding="utf-8"))


def sections(folder):
    (folder / "a.cpp").write_text("int x;\n    // --8<-- [start:one]\n    int y;\n        int z;\n    // --8<-- [end:one]\n")
    page = 'Text\n\n```cpp\n--8<-- "a.cpp:one"\n```\n'
    check(snippets.expand(folder, page) == "Text\n\n```cpp\nint y;\n    int z;\n```\n", "a section is put in its place, less its indentation")
    for wrong in ("a.cpp:two", "b.cpp:one", "labs/02-ring-allreduce/solution/cost.hpp"):
        try:
            snippets.expand(folder, f'--8<-- "{wrong}"\n')
            check(False, f"{wrong} was not refused")
        except snippets.SnippetError:
            pass


def links(folder):
    def said(text):
        (folder / "index.html").write_text(text)
        done = subprocess.run([sys.executable, ROOT / "course" / "tools" / "check_links.py", folder], capture_output=True, text=True)
        return done.returncode, done.stdout

    good = '<p id="here"><a href="#here">a</a> <a href="index.html#here">b</a> <a href="https://example.org">c</a></p>'
    check(said(good)[0] == 0, f"good links: {said(good)[1]}")
    for bad in ('<a href="none.html">a</a>', '<a href="#nothing">a</a>', '<img src="../outside.svg">', '<script src="https://example.org/x.js"></script>'):
        check(said(bad)[0] == 1, f"{bad} was not noticed")


def typesetting():
    class Page:
        class file:
            src_path = "a.md"

    text = '<p><span class="arithmatex">\\(a &lt; b\\)</span>.</p><div class="arithmatex">\\[\nc \\tag{1}\n\\]</div><img alt="f" src="f.svg" />'
    there = formulas.available()
    config = {"extra_css": [formulas.STYLE] if there else []}
    out = formulas.on_post_page(formulas.on_page_content(text, Page, config))
    check('id="eq-1"' in out and '<a class="figure" href="f.svg"' in out, f"anchors of equations and figures: {out}")
    check('class="katex"' in out if there else "<code>a &lt; b</code>" in out, f"formulas: {out}")
    check(not there or '</span>.</span></p>' in out, f"a full stop stays with its formula: {out}")
    if there:
        one = formulas.readable(formulas.render([(r"\hat T = \frac{p-1}{p}\,n_i^2 \tag{1}", True)])[0])
        check(formulas.words(one) == "T\u0302=(p−1)/p n_i^2 (1)", f"formulas in the search: {formulas.words(one)}")
        check("<annotation" not in one and 'aria-hidden="true" hidden' in one and "alttext=" in one, f"formulas without style sheets: {one}")
    check(search.boost("lectures/a.html") == search.boost("labs/1/index.html") > search.boost("labs/grader/index.html") == search.boost("settings.html") > search.boost("api/a.html"), "the order of the search")
    worker = "x;for(let s of r)this.add(s);y"
    check(search.boosted(worker) == "x;for(let s of r)this.add(s,{boost:s.boost});y" == search.boosted(search.boosted(worker)), "boosts in the worker")


scanner()
typesetting()
with tempfile.TemporaryDirectory() as name:
    sections(pathlib.Path(name))
    links(pathlib.Path(name))
print("scanner of headers, snippets, links: as they should be")
