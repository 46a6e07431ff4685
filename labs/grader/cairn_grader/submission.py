"""What is handed in, before a compiler sees it: the files of the lab, and whether their text keeps to the rules.

The tests stand below the text of a submission, in one program. So that text could bend them: a macro CHECK, a second std::operator==, an
#include that prints a hidden file in an error message. It is read token by token, without comments and literals; what could hide a token
(macros, _Pragma, \\u, computed includes) is refused too. Students meet the same rules when they run the public tests."""

import posixpath
import re
import shutil
import stat

MOST_KILOBYTES = 256  # of one file
DIRECTIVES = {"define", "if", "ifdef", "ifndef", "else", "elif", "elifdef", "elifndef", "endif", "include", "pragma", "error", "warning", ""}
GUARD = re.compile(r"[A-Z]\w*_H(PP)?_?")
PRAGMAS = (["once"], ["GCC", "unroll"], ["GCC", "ivdep"])
COMPILERS_NAMES = re.compile(r"__(builtin_(clz|ctz|popcount|parity|expect|prefetch|unreachable|assume_aligned)\w*|restrict(__)?|func__|cplusplus|int128|"
                             r"FILE__|LINE__|has_include|has_cpp_attribute|m\d+[di]?|(SSE|AVX|FMA)\w*)")
MACHINERY = {"asm", "extern", "gnu", "clang", "Catch", "syscall", "dlopen", "dlsym", "mprotect", "_Pragma"}
OTHERS_NAMESPACES = {"std", "cairn", "lab", "xt"}

TOKEN = re.compile(r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<include>(?<![^\n])[ \t]*(?:\#|%:)[ \t]*include[ \t]*(?:<[^>\n]*>|"[^"\n]*"))
  | (?P<raw>\b(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
  | (?P<literal>(?:\b(?:u8|[uUL]))?(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<name>[^\W\d]\w*)
  | (?P<newline>\n)
  | (?P<space>[^\S\n]+)
  | (?P<sign>\#\#|%:%:|\#|%:|::|.)
""", re.X | re.S)
LITERAL = '""'


def find(folder, files):
    """Where the files are: in `folder`, or in the one folder inside it that has all of them, as zip files often bring it."""
    folder = folder.resolve()
    if any((folder / name).exists() for name in files):
        return folder
    inside = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink() and all((path / name).is_file() for name in files)]
    return inside[0] if len(inside) == 1 else folder


def fault_of_file(path):
    """What is wrong with a file before its text is looked at, or nothing."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a link" if stat.S_ISLNK(status.st_mode) else "a folder" if stat.S_ISDIR(status.st_mode) else "no ordinary file"
            return f"{path.name} is {kind}; hand in the file itself"
        if status.st_size > MOST_KILOBYTES << 10:
            return f"{path.name} has {status.st_size >> 10} kB; more than {MOST_KILOBYTES} kB are not read"
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        return f"{path.name} is no UTF-8 text (byte {error.start}); save it as UTF-8"
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror}"
    if not text.strip():
        return f"{path.name} is empty"
    return f"{path.name} contains a zero byte; is it text?" if "\0" in text else None


def collect(folder, lab, into):
    """Copies the files of the lab, and nothing else, from a submission. The reason why they cannot be graded, or nothing."""
    folder = find(folder, lab.files)
    if missing := [name for name in lab.files if not (folder / name).is_symlink() and not (folder / name).exists()]:
        return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing from the submission; handed in must be {', '.join(lab.files)}"
    for name in lab.files:
        if why := fault_of_file(folder / name):
            return why
        shutil.copyfile(folder / name, into / name)
        if why := fault((into / name).read_text(encoding="utf-8"), lab.forbidden_includes):
            return f"{name}:{why}"
    return None


def tokens_of(text):
    """(line, token, first of its logical line) as a compiler sees them; comments are left out, literals are LITERAL."""
    splices = [m.start() - 2 * i for i, m in enumerate(re.finditer(r"\\\n", text))]  # where they were, in the text without them
    number, first = 1, True
    for match in TOKEN.finditer(re.sub(r"\\\n", "", text)):
        while splices and splices[0] <= match.start():
            splices.pop(0)
            number += 1
        kind, word = match.lastgroup, match[0]
        if kind == "newline":
            first = True
        elif kind not in ("comment", "space"):
            yield number, LITERAL if match["raw"] or kind == "literal" else word.strip(), first
            first = False
        number += word.count("\n")


def include_fault(word, forbidden):
    path = re.search(r'[<"](.*?)[>"]', word)[1]
    if path.startswith("/") or ".." in path.split("/") or "\\" in path:
        return f"includes {path}: only the lab's own files and headers of C++ and Cairn, without .. and without / in front"
    if hit := next((f for f in forbidden if posixpath.normpath(path).startswith(f)), None):
        return f"includes {hit}…: the library's own solution may not be used"
    return None


def directive_fault(words):
    """Of a # that begins a line; words: what follows it."""
    name = words[0]
    if name == "include":
        return "#include: write #include <…> or #include \"…\" plainly"
    if name == "define" and not GUARD.fullmatch(words[1]):
        return f"#define {words[1]}: no macros, for they would change the tests below your text; take a constant or a function"
    if name == "pragma" and not any(words[1:1 + len(p)] == p for p in PRAGMAS):
        return f"#pragma {words[1]}: only once, GCC unroll and GCC ivdep"
    return None if name in DIRECTIVES else f"#{name}: not allowed in a submission"


def word_fault(words):
    """Of words[1], which stands between words[0] and words[2], …"""
    before, word, after = words[:3]
    if word in MACHINERY or word.startswith("__") and not COMPILERS_NAMES.fullmatch(word):
        return f"{word}: not allowed in a submission, where it could reach the machinery of the tests"
    if word == "lab" and (after == "::" or before in ("namespace", "=", "using")):
        return "lab::… belongs to the tests"
    if word == "namespace" and after in OTHERS_NAMESPACES and words[3] != "=" and before != "using":
        return f"namespace {after}: what you write belongs into namespace student"
    if words[1:4] == ["template", "<", ">"] and "::" in words[4:next((i for i in range(4, len(words)) if words[i] in "{;"), len(words))]:
        return "template <> …::…: specialise only templates of your own; an overload may do"
    if word in ("##", "%:%:", "\\", "'", '"'):
        return f"{word} outside of a literal, or a quote without its end"
    return None


def fault(text, forbidden_includes=()):
    """'LINE: what is against the rules' of the first place that is, or nothing."""
    text = text.replace("\r\n", "\n")
    if "\r" in text:
        return f"{text[:text.index(chr(13))].count(chr(10)) + 1}: a carriage return without a line feed; save the file with plain line ends"
    text = re.sub(r"\\[ \t]+\n", "\\\n", text)
    tokens = list(tokens_of(text))
    words = ["", *(word for _, word, _ in tokens), "", "", ""]
    in_error = False
    for i, (line, word, first) in enumerate(tokens):
        why = None
        if first:
            in_error = False
            if word.startswith(("#", "%:")) and ("<" in word or '"' in word):
                why = include_fault(word, forbidden_includes)
            elif word in ("#", "%:"):
                end = next((j for j in range(i + 1, len(tokens)) if tokens[j][2]), len(tokens))
                directive = [w for _, w, _ in tokens[i + 1:end]] + ["", "", ""]
                in_error = directive[0] in ("error", "warning")
                why = directive_fault(directive)
        if why := why or (None if in_error else word_fault(words[i:i + 400])):
            return f"{line}: {why}"
    return None
