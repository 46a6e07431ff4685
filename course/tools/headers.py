"""What a header declares: the public names of its namespaces with their comments and signatures, without bodies. A scanner for the
C++ of this repository, not for all of C++: where it cannot follow it says so, and the site is not built."""

import re
from dataclasses import dataclass

TOKEN = re.compile(r"""
    (?P<doc>///[^\n]*) | (?P<comment>//[^\n]*|/\*.*?\*/) | (?P<macro>^[ \t]*\#(?:[^\n\\]|\\\n|\\.)*)
  | (?P<text>R"(?P<tag>[^()\\\s]*)\(.*?\)(?P=tag)"|"(?:[^"\\]|\\.)*") | (?P<number>\d(?:[\w.]|'\w|[eE][+-])*) | (?P<letter>'(?:[^'\\]|\\.)+')
  | (?P<word>operator\s*(?:\(\)|\[\]|[-+*/%^&|~!=<>]+|[\w:]+)|[^\W\d]\w*) | (?P<mark>::|->|<=>|<=|>=|==|!=|&&|\|\||[^\s])
""", re.VERBOSE | re.DOTALL | re.MULTILINE)
PAIRS = {"(": ")", "[": "]", "{": "}"}
HIDDEN = re.compile(r"detail$|_detail$")  # namespaces that are nobody else's business
GENERATED = re.compile(r"^CAIRN_COMPILED_\w+\(.*?\)\n", re.MULTILINE | re.DOTALL)  # which templates are compiled once: not an interface


@dataclass
class Token:
    kind: str
    text: str
    begin: int
    end: int


@dataclass
class Item:
    kind: str  # class, enum, concept, function, alias, variable, access
    name: str
    first: int  # where it begins, comments included
    begin: int
    signature: int  # where the signature ends
    end: int
    doc: tuple  # lines of the comment
    namespace: str = ""
    members: tuple = ()
    close: int = 0  # of a class: where its closing brace is


def first_branches(tokens):
    """Without what stands between #else and #endif: braces are balanced in either branch alone."""
    kept, skipping = [], []  # of each #if around: whether its first branch is over
    for token in tokens:
        directive = re.match(r"\s*#\s*(if|el|endif)", token.text) if token.kind == "macro" else None
        if directive and directive[1] == "if":
            skipping.append(False)
        elif directive and directive[1] == "el":
            skipping[-1] = True
        elif directive:
            skipping.pop()
        if not any(skipping):
            kept.append(token)
    return kept


class Header:
    def __init__(self, path, text):
        self.path = path
        self.text = GENERATED.sub("", text)
        self.tokens = first_branches(Token(m.lastgroup if m.lastgroup != "tag" else "text", m[0], m.start(), m.end()) for m in TOKEN.finditer(self.text))
        self.match = {}
        opened = []
        for i, token in enumerate(self.tokens):
            if token.kind == "mark" and token.text in PAIRS:
                opened.append(i)
            elif token.kind == "mark" and token.text in PAIRS.values():
                if not opened or PAIRS[self.tokens[opened[-1]].text] != token.text:
                    self.fail(token, f"{token.text} closes nothing")
                self.match[opened.pop()] = i
        self.items = self.scope(0, len(self.tokens), "")

    def fail(self, token, why):
        raise SystemExit(f"{self.path}:{self.text.count(chr(10), 0, token.begin) + 1}: {why}; course/tools/headers.py cannot read it")

    def head(self):
        """The comment on top of the file."""
        lines = []
        for line in self.text.splitlines():
            if line.startswith("//"):
                lines.append(line[2:].removeprefix(" "))
            elif lines or not line.startswith("#pragma"):
                break
        return lines

    def scope(self, i, stop, namespace, public=None):
        """The items between two tokens. public: None in a namespace, else the access that a class begins with."""
        items, doc = [], []
        while i < stop:
            token = self.tokens[i]
            if token.kind in ("doc", "comment") and i and "\n" not in self.text[self.tokens[i - 1].end:token.begin]:
                i += 1  # belongs to what stands before it
            elif token.kind in ("doc", "comment", "macro"):
                near = doc and "\n\n" not in self.text[doc[-1].end:token.begin]
                doc = ([*doc, token] if near else [token]) if token.kind != "macro" else []
                i += 1
            elif token.text in ("public", "private", "protected") and self.tokens[i + 1].text == ":":
                public = token.text == "public"
                items.append(Item("access", token.text, token.begin, token.begin, token.begin, self.tokens[i + 1].end, ()))
                doc, i = [], i + 2
            elif token.text == ";" or token.text == "namespace" and self.tokens[i + 1].text == "{":
                doc, i = [], (self.match[i + 1] if token.text == "namespace" else i) + 1
            elif token.text == "namespace":
                body = i + 1
                while self.tokens[body].text not in "{;=":
                    body += 1
                name = self.text[self.tokens[i + 1].begin:self.tokens[body].begin].strip()
                if self.tokens[body].text == "{":
                    if not HIDDEN.search(name):
                        items += self.scope(body + 1, self.match[body], f"{namespace}::{name}".removeprefix("::"))
                    body = self.match[body]
                doc, i = [], body + 1
            else:
                near = doc and not re.search(r"\n\s*\n", self.text[doc[-1].end:token.begin])
                item, i = self.declaration(i, stop, tuple(doc) if near else (), namespace)
                if item and public is not False:
                    items.append(item)
                elif item:
                    items.append(Item("private", "", item.first, item.first, item.first, item.end, ()))
                doc = []
        return items

    def declaration(self, i, stop, doc, namespace):
        """The declaration at token i, and the token behind it."""
        begin, words, brackets, assigned, colon, keyword, members, close = i, [], 0, False, None, None, (), 0
        end = None
        while i < stop and end is None:
            token = self.tokens[i]
            if token.text == "template" and self.tokens[i + 1].text == "<":
                i = self.after_angles(i + 1)
                continue
            if token.kind == "word":
                words.append(i)
                if token.text in ("class", "struct", "union", "enum", "concept") and not brackets and keyword is None:
                    keyword = i
            elif token.kind == "mark" and token.text == "=":
                assigned = True
            elif token.text == ":" and brackets and colon is None and not assigned:
                colon = i
            elif token.text == "(" or token.text == "[":
                callee = self.tokens[i - 1].text if i > begin else ""
                if token.text == "(" and callee not in ("requires", "decltype", "noexcept", "alignas", "explicit", "__attribute__"):
                    brackets = brackets or (0 if assigned else i)
                i = self.match[i]
            elif token.text == "{":
                after, before = self.match[i] + 1, self.tokens[i - 1]
                opener = next((k for k, v in self.match.items() if v == i - 1), None) if before.text == ")" else None
                follows = self.tokens[after].text if after < len(self.tokens) else ""
                is_class = keyword is not None and self.tokens[keyword].text != "concept" and not brackets
                if is_class and self.tokens[keyword].text != "enum":
                    members = tuple(self.scope(i + 1, self.match[i], namespace, self.tokens[keyword].text != "class"))
                    close = self.text.rindex("\n", 0, self.tokens[self.match[i]].begin) + 1
                elif is_class or assigned or before.text == "requires" or opener and self.tokens[opener - 1].text == "requires":
                    pass
                elif not brackets or colon is not None and before.kind == "word" and follows in (",", "{"):
                    pass
                else:
                    signature, end = (colon if colon is not None else i), after
                i = self.match[i]
            elif token.text == ";":
                signature, end = i, i + 1
            i += 1
        if end is None:
            self.fail(self.tokens[begin], "a declaration without an end")
        kind, name = self.what(begin, words, brackets, keyword, end)
        if not kind:
            return None, end
        first = doc[0] if doc else self.tokens[begin]
        lines = tuple(d.text[3:].removeprefix(" ") for d in doc if d.kind == "doc")
        return Item(kind, name, first.begin, self.tokens[begin].begin, self.tokens[signature - 1].end, self.tokens[end - 1].end, lines, namespace, members, close), end

    def after_angles(self, i):
        depth = 0
        while True:
            text = self.tokens[i].text
            depth += {"<": 1, ">": -1}.get(text, 0)
            i = self.match[i] if text in PAIRS else i
            i += 1
            if depth == 0:
                return i

    def what(self, begin, words, brackets, keyword, end):
        """(kind, name) of a declaration; nothing for what declares no name of its own."""
        text = [self.tokens[w].text for w in words]
        if not text or text[0] in ("static_assert", "extern") or text[:2] == ["friend", "class"] or text[0] == "using" and "=" not in [t.text for t in self.tokens[begin:end]]:
            return None, None
        if text[0] == "using":
            return "alias", text[1]
        if keyword is not None and not brackets:
            kind = self.tokens[keyword].text
            names = [t for w, t in zip(words, text) if w > keyword and t not in ("class", "struct", "final", "alignas")]
            if kind in ("class", "struct", "union") and not any(t.text == "{" for t in self.tokens[begin:end]):
                return None, None  # announced only
            return {"enum": "enum", "concept": "concept"}.get(kind, "class"), names[0] if names else ""
        if brackets:
            named = [t for w, t in zip(words, text) if w < brackets]
            named = [t for t in named if t.startswith("operator")] or named
            tilde = self.tokens[brackets - 2].text == "~"
            return ("function", ("~" if tilde else "") + re.sub(r"\s+", " ", named[-1])) if named else (None, None)
        for w, t in zip(words, text):
            if self.tokens[w + 1].text in ("=", "{", ";", "["):
                return "variable", t
        return None, None

    def synopsis(self, item):
        """Its source without bodies and without what is private."""
        if not item.members:
            return self.text[item.begin:item.signature] + ";" if item.kind == "function" else self.text[item.begin:item.end]
        cuts, hidden = [], None  # (from, to, what comes instead)
        for member in item.members:
            if member.kind == "access" and hidden is not None and member.name == "public":
                cuts.append((hidden, member.first, ""))
                hidden = None
            elif member.kind == "access" and hidden is None and member.name != "public":
                hidden = member.first
            elif hidden is None and member.kind == "private":
                cuts.append((member.first, member.end, ""))
            elif hidden is None and member.members:
                cuts.append((member.begin, member.end, self.synopsis(member)))
            elif hidden is None and member.kind == "function":
                cuts.append((member.signature, member.end, ";"))
        if hidden is not None:
            cuts.append((hidden, item.close, ""))
        out, at = [], item.begin
        for begin, end, instead in cuts:
            out += [self.text[at:begin].rstrip(" ") if not instead else self.text[at:begin], instead]
            at = end
        text = "".join(out) + self.text[at:item.end]
        return re.sub(r"\n\s*\n( *\}|public:)", r"\n\1", re.sub(r"\n\s*\n\s*\n", "\n\n", text))
