"""Files of R's save(), read: vectors, factors, matrices, data frames and lists of them (R Internals, 1.8: XDR, versions 2 and 3; packed by gzip, bzip2, xz or not).

    read(path)  {name: object}: numbers and texts as lists, NA as None; a factor as its levels' names; a matrix or a data frame as a list of columns; a named list as a dictionary
"""

import bz2
import gzip
import lzma
import struct

SYMBOL, PAIRS, TEXT, LOGICAL, INTEGER, REAL, STRINGS, LIST, ALTREP = 1, 2, 9, 10, 13, 14, 16, 19, 238
NIL, REFERENCE = 254, 255
NA_INTEGER, NA_REAL = -(1 << 31), 1954


class _Reader:
    def __init__(self, contents):
        self.contents, self.at, self.symbols = contents, 0, []

    def take(self, count):
        if self.at + count > len(self.contents):
            raise ValueError(f"it ends after {len(self.contents)} bytes, in the middle of an object")
        self.at += count
        return self.contents[self.at - count:self.at]

    def number(self):
        return struct.unpack(">i", self.take(4))[0]

    def header(self):
        if self.take(7) not in (b"RDX2\nX\n", b"RDX3\nX\n"):
            raise ValueError("no file of R's save() in its binary form")
        version = self.number()
        self.take(8)  # versions of R
        if version == 3:
            self.take(self.number())  # name of the encoding

    def pairs(self, flags):
        """A pairlist as [(tag, value)]."""
        found = []
        while flags & 255 == PAIRS:
            if flags & 0x200:
                self.item()
            tag = self.item() if flags & 0x400 else None
            found.append((tag, self.item()))
            flags = self.number()
        return found

    def item(self, flags=None):
        flags = self.number() if flags is None else flags
        kind = flags & 255
        if kind == SYMBOL:
            self.symbols.append(self.item())
            return self.symbols[-1]
        if kind == REFERENCE:
            return self.symbols[(flags >> 8 or self.number()) - 1]
        if kind == PAIRS:
            return self.pairs(flags)
        if kind == TEXT:
            length = self.number()
            return None if length < 0 else self.take(length).decode("utf-8", "replace")
        if kind == NIL or 240 < kind < 254:  # environments that are always there
            return None
        if kind == ALTREP:
            return self.compact()
        if kind not in (LOGICAL, INTEGER, REAL, STRINGS, LIST):
            raise ValueError(f"an object of type {kind}, which is no vector, list or data frame")
        count = self.number()
        if kind == REAL:
            raw = self.take(8 * count)
            values = [None if v != v and struct.unpack(">I", raw[8 * i + 4:8 * i + 8])[0] == NA_REAL else v for i, v in enumerate(struct.unpack(f">{count}d", raw))]
        elif kind in (LOGICAL, INTEGER):
            values = [None if v == NA_INTEGER else v for v in struct.unpack(f">{count}i", self.take(4 * count))]
        else:
            values = [self.item() for _ in range(count)]
        return _shaped(values, dict(self.pairs(self.number())) if flags & 0x200 else {})

    def compact(self):
        """A sequence a, a + d, …, as R keeps 1:n, or what it has wrapped."""
        what, state = self.item(), self.item()
        self.item()  # its attributes
        name = what[0][1] if isinstance(what, list) else None
        if name in ("compact_intseq", "compact_realseq"):
            count, first, step = state
            return [first + step * i for i in range(int(count))]
        if name and name.startswith("wrap_"):
            return state[0]
        raise ValueError(f"an object kept as {name}, which this reader does not know")


def _shaped(values, attributes):
    if "levels" in attributes:
        return [None if v is None else attributes["levels"][v - 1] for v in values]
    if "dim" in attributes and len(attributes["dim"]) == 2:
        rows, columns = attributes["dim"]
        return [values[k * rows:(k + 1) * rows] for k in range(columns)]
    if "names" in attributes and "data.frame" not in (attributes.get("class") or []) and isinstance(values[0] if values else None, (list, dict)):
        return dict(zip(attributes["names"], values))
    return values


def read(path):
    """See the top. ValueError naming the file where it is no such one, is truncated, or has objects of other kinds; OSError."""
    contents = path.read_bytes()
    try:
        for start, unpack in ((b"\x1f\x8b", gzip.decompress), (b"BZh", bz2.decompress), (b"\xfd7zXZ", lzma.decompress)):
            if contents.startswith(start):
                contents = unpack(contents)
        reader = _Reader(contents)
        reader.header()
        return dict(reader.item())
    except (ValueError, EOFError, OSError, lzma.LZMAError, IndexError, TypeError) as problem:
        raise ValueError(f"{path}: {problem}") from None
