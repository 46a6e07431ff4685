#!/usr/bin/env python3
"""Checks benchmarks/fetch_data against a web server of its own: fetch, checksum, resume, unpack, and what it says when things fail."""

import contextlib
import hashlib
import http.server
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import sys
import tarfile
import tempfile
import threading
import time
import zipfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "fetch_data"
loader = importlib.machinery.SourceFileLoader("fetch_data", str(SCRIPT))
fetch_data = importlib.util.module_from_spec(importlib.util.spec_from_loader("fetch_data", loader))
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPT.parent))
loader.exec_module(fetch_data)

FILES = {}
RANGES = []


class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        content = FILES.get(self.path)
        if content is None:
            return self.send_error(404)
        wanted, begin = self.headers.get("Range"), 0
        if wanted:
            RANGES.append(wanted)
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            if begin >= len(content):
                return self.send_error(416)
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:begin + 1000] if self.path.startswith("/short") and not wanted else content[begin:])

    def log_message(self, *arguments):
        pass


def tar_of(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def run(folder, *arguments):
    """Exit code and everything that was printed."""
    out = io.TextIOWrapper(io.BytesIO(), write_through=True)
    old = sys.argv
    sys.argv = ["fetch_data", *arguments, "--to", str(folder)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = fetch_data.main()
    finally:
        sys.argv = old
    return code, out.buffer.getvalue().decode()


def check(condition, *what):
    if not condition:
        sys.exit("fetch_data_check: " + " ".join(str(w) for w in what))


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_address[1]}"
    File = fetch_data.File
    content = bytes(range(256)) * 40
    md5 = "md5:" + hashlib.md5(content).hexdigest()

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)

        def define(name, *files):
            fetch_data.SETS[name] = ("test", list(files))

        FILES["/a"] = content
        define("plain", File("a", [base + "/missing", base + "/a"], md5))
        code, text = run(folder, "plain")
        check(code == 0 and (folder / "plain/a").read_bytes() == content and "md5 is right" in text, "plain:", text)
        code, text = run(folder, "plain")
        check(code == 0 and "is here already" in text, "second time:", text)

        define("damaged", File("a", [base + "/a"], "md5:0123"))
        code, text = run(folder, "damaged")
        check(code == 1 and "expected 0123" in text and "Delete the file" in text, "damaged:", text)

        define("unpublished", File("a", [base + "/a"]))
        code, text = run(folder, "unpublished")
        check(code == 0 and "no published checksum; sha256 " + hashlib.sha256(content).hexdigest() in text, "unpublished:", text)

        FILES["/short"] = content
        define("broken", File("a", [base + "/short"], md5))
        code, text = run(folder, "broken")
        check(code == 1 and "1000 of 10240 bytes" in text and not (folder / "broken/a").exists(), "broken:", text)
        code, text = run(folder, "broken")
        check(code == 0 and RANGES == ["bytes=1000-"] and (folder / "broken/a").read_bytes() == content, "resumed:", text, RANGES)

        FILES["/t.tar.gz"] = tar_of({"top/x.bin": b"x" * 5000, "top/deep/y.bin": b"y"})
        define("packed", File("t.tar.gz", [base + "/t.tar.gz"], None, "tar"))
        code, text = run(folder, "packed")
        check(code == 0 and (folder / "packed/deep/y.bin").read_bytes() == b"y" and not (folder / "packed/t.tar.gz").exists(), "packed:", text)

        FILES["/evil.tar.gz"] = tar_of({"top/../../../evil.bin": b"x"})
        define("evil", File("evil.tar.gz", [base + "/evil.tar.gz"], None, "tar"))
        code, text = run(folder, "evil")
        check(code == 1 and "would leave" in text and not (folder.parent / "evil.bin").exists(), "evil:", text)

        FILES["/cut.tar.gz"] = FILES["/t.tar.gz"][:60]
        define("cut", File("cut.tar.gz", [base + "/cut.tar.gz"], None, "tar"))
        code, text = run(folder, "cut")
        check(code == 1 and "cannot be unpacked" in text, "cut:", text)

        FILES["/tiny.zip"] = zip_of({
            "tiny-imagenet-200/train/n1/images/n1_0.JPEG": b"a", "tiny-imagenet-200/train/n1/n1_boxes.txt": b"",
            "tiny-imagenet-200/val/images/v0.JPEG": b"b", "tiny-imagenet-200/val/val_annotations.txt": b"v0.JPEG\tn1\t0\t0\t1\t1\n",
            "tiny-imagenet-200/test/images/t0.JPEG": b"c"})
        define("tinyimagenet", File("tiny.zip", [base + "/tiny.zip"], None, "zip"))
        code, text = run(folder, "tinyimagenet")
        root = folder / "tinyimagenet/tiny-imagenet-200"
        found = sorted(str(path.relative_to(root)) for path in root.rglob("*.JPEG"))
        check(code == 0 and found == ["train/n1/n1_0.JPEG", "val/n1/v0.JPEG"], "tinyimagenet:", text, found)

        # A name that cannot be resolved, and a port without a listener: quickly, with URL and what to do by hand.
        server.shutdown()
        define("offline", File("a", ["http://cairn-test.invalid/a", "http://127.0.0.1:1/a"], md5))
        begin = time.monotonic()
        code, text = run(folder, "offline")
        check(code == 1 and "cairn-test.invalid" in text and "127.0.0.1:1" in text and "put it at" in text, "offline:", text)
        check(time.monotonic() - begin < 20, "offline took", time.monotonic() - begin)

        code, text = run(folder, "nonsense")
        check(code == 2 and "there are: mnist" in text, "unknown:", text)
        code, text = run(folder, "imagenet")
        check(code == 0 and "Register" in text, "imagenet:", text)
        blocked = folder / "file"
        blocked.write_text("")
        code, text = run(blocked, "plain")
        check(code == 1 and str(blocked) in text, "unwritable:", text)
    print("fetch_data_check: all right")
    return 0


if __name__ == "__main__":
    os.environ.pop("http_proxy", None)
    sys.exit(main())
