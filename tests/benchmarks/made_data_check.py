#!/usr/bin/env python3
"""Tables made of fetched files: what R's save() writes, read byte by byte; fusion's slices of two files; damaged ones are named."""

import gzip
import math
import pathlib
import struct
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
import made_data  # noqa: E402
import r_data  # noqa: E402


def text(word):
    return struct.pack(">ii", 9 | 1 << 18, len(word)) + word.encode()


def strings(*words):
    return struct.pack(">ii", 16, len(words)) + b"".join(map(text, words))


def pair(tag, value):
    return struct.pack(">i", 2 | 0x400) + struct.pack(">i", 1) + text(tag) + value


END = struct.pack(">i", 254)


def reals(*values):
    return struct.pack(f">ii{len(values)}d", 14, len(values), *values)


def saved():
    """save(khan): a list of x, a data frame of two genes and three samples, and y, a factor; as R 4.2 writes it, which a test on a machine with R has seen."""
    genes = struct.pack(">ii", 19 | 0x300, 2) + reals(1.5, -2, 1e-9) + reals(4, 5, 1 / 3) + pair("names", strings("g1", "g2")) + pair("class", strings("data.frame")) + END
    labels = struct.pack(">ii3i", 13 | 0x300, 3, 2, 1, 2) + pair("levels", strings("EWS", "RMS")) + pair("class", strings("factor")) + END
    both = struct.pack(">ii", 19 | 0x200, 2) + genes + labels + pair("names", strings("x", "y")) + END
    return b"RDX3\nX\n" + struct.pack(">iiii", 3, 0x40202, 0x30500, 5) + b"UTF-8" + pair("khan", both) + END


def refused(call, *words):
    try:
        call()
    except (ValueError, made_data.Failed) as problem:
        assert all(word in str(problem) for word in words), problem
        return
    raise AssertionError(f"{words}: it was accepted")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = folder / "khan.RData"
        path.write_bytes(gzip.compress(saved()))
        assert r_data.read(path) == {"khan": {"x": [[1.5, -2.0, 1e-9], [4.0, 5.0, 1 / 3]], "y": ["RMS", "EWS", "RMS"]}}
        made_data.arrange_cancer(folder)
        assert (folder / "khan.csv").read_text() == "RMS,1.5,4\nEWS,-2,5\nRMS,1e-09,0.33333333\n"
        for length in range(0, len(saved()), 5):
            path.write_bytes(saved()[:length])
            refused(lambda: r_data.read(path), str(path))
        path.write_bytes(saved().replace(b"khan", b"sing"))
        refused(lambda: made_data.arrange_cancer(folder), "khan.RData", "fetch again")

        head = "id,TOK,SHOT,TIME,PHASE,IP,BT,NEL,PLTH,RGEO,KAREA,EPS,MEFF,TAUTH\n"
        (folder / "DB2P8.csv").write_text(head + "b,JET,10,2.5,H,1,-2,3,4,5,6,7,8,0.5\na,JET,9,1,H,1,2,3,4,5,6,7,8,0.25\n")
        (folder / "R.csv").write_text(head + "c,AUG,7,1,H," + ",".join([repr(math.log(3))] * 8) + ",0\n")
        made_data.arrange_fusion(folder)
        lines = (folder / "std5.csv").read_text().splitlines()
        assert lines[1:] == ["c,AUG,7,1,H,3,3,3,3,3,3,3,3,1,added", "a,JET,9,1,H,1,2,3,4,5,6,7,8,0.25,DB2P8", "b,JET,10,2.5,H,1,2,3,4,5,6,7,8,0.5,DB2P8"], lines
        (folder / "R.csv").write_text(head.replace("EPS", "eps"))
        refused(lambda: made_data.arrange_fusion(folder), "R.csv", "no column EPS")
    print("made data: all right")


if __name__ == "__main__":
    main()
