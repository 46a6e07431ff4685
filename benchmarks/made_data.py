"""What benchmarks/fetch_data makes of the files that it has fetched: folders as `train` expects them, fields, tables."""

import collections
import csv
import gzip
import hashlib
import io
import math
import pickle
import shutil
import zipfile

import r_data


class Failed(Exception):
    pass


class TensorReader(pickle.Unpickler):
    """Reads a dictionary of PyTorch's tensors, each as (number of elements, type, key of its storage, shape); makes no other object."""

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, size, stride, *rest: (storage, offset, tuple(size), tuple(stride))
        if module == "torch" and name in ("FloatStorage", "BoolStorage", "ByteStorage"):
            return name
        raise Failed(f"{module}.{name} where a tensor is expected")

    def persistent_load(self, identifier):
        return identifier[1], identifier[2]


# Of the arrays in each file, SHA-256 of their elements.
ARRAYS = {
    "train_16": {"x": "f4534fbdfe40b9cdb6e22bc1f74a4df6b2f7531de3f0def249411220fe6db068", "y": "2cddaae46a94fa0fcda19120fc46cc88c1d40170dcb1c719df42b9e4d5d233f1"},
    "test_16": {"x": "a4de80cd3ea26199c973ab644feb657361407afd4e8e8c9c5e4b2aaa49b88178", "y": "5546468917e6930b781ed1e41974a3082220c3d81543457a16ec166ad129001b"},
    "test_32": {"x": "e29e5fb99c994e1eeda78386d9a6a443310b46e288de332a565f254c2ab1499a", "y": "02ab58b64b1df0b5c59e764f08e13423983a22835aadcb4d026e708a3af034ea"},
}


def unpack_tensors(path, folder):
    """Writes NAME_KEY.npy.gz of each tensor of PyTorch's file darcy_NAME.pt, booleans as bytes."""
    name = path.stem.removeprefix("darcy_")
    with zipfile.ZipFile(path) as archive:
        top = next(member.removesuffix("data.pkl") for member in archive.namelist() if member.endswith("/data.pkl"))
        tensors = TensorReader(io.BytesIO(archive.read(top + "data.pkl"))).load()
        for key, expected in ARRAYS[name].items():
            (kind, storage), offset, shape, stride = tensors[key]
            width = 4 if kind == "FloatStorage" else 1
            count = 1
            for extent, step in zip(reversed(shape), reversed(stride)):
                if step != count:
                    raise Failed(f"{path}: tensor {key} has strides {stride} for shape {shape}")
                count *= extent
            elements = archive.read(f"{top}data/{storage}")[width * offset:width * (offset + count)]
            if hashlib.sha256(elements).hexdigest() != expected:
                raise Failed(f"{path}: the elements of {key} are not those expected. Delete the file and fetch again.")
            header = f"{{'descr': '{'<f4' if width == 4 else '|u1'}', 'fortran_order': False, 'shape': {shape}, }}".encode()
            header += b" " * (-(len(header) + 11) % 64) + b"\n"
            with gzip.GzipFile(folder / f"{name}_{key}.npy.gz", "wb", mtime=0) as out:
                out.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + elements)


def arrange_tinyimagenet(root):
    """Makes root/{train,val}/CLASS/NAME.JPEG of the archive's own layout; the test images have no labels and go."""
    for images in sorted(root.glob("train/*/images")):
        for image in images.iterdir():
            image.rename(images.parent / image.name)
        images.rmdir()
    annotations = root / "val" / "val_annotations.txt"
    if annotations.exists():
        for line in annotations.read_text().splitlines():
            name, label = line.split("\t")[:2]
            image = root / "val" / "images" / name
            if image.exists():
                (root / "val" / label).mkdir(exist_ok=True)
                image.rename(root / "val" / label / name)
        shutil.rmtree(root / "val" / "images", ignore_errors=True)
    shutil.rmtree(root / "test", ignore_errors=True)


def write_table(path, lines, digest):
    """A table made of what was fetched: the one that figures in reference/ are of has this digest."""
    text = "".join(line + "\n" for line in lines)
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != digest:
        print(f"  {path.name}: its sha256 is {found}, not {digest}: the sources have changed, or numbers were rounded otherwise; figures may differ")
    path.write_text(text)


def arrange_fusion(folder):
    """std5.csv of the slices of 1998, DB2P8.csv, and of the later ones, R.csv, which has logarithms."""
    columns = ["IP", "BT", "NEL", "PLTH", "RGEO", "KAREA", "EPS", "MEFF", "TAUTH"]
    names = ["id", "TOK", "SHOT", "TIME", "PHASE"]
    rows = []
    for part, number in (("DB2P8", lambda v: abs(float(v))), ("R", lambda v: math.exp(float(v)))):
        with open(folder / f"{part}.csv", newline="") as file:
            table = csv.DictReader(file)
            if missing := [name for name in names + columns if name not in (table.fieldnames or [])]:
                raise Failed(f"{folder / part}.csv has no column {', '.join(missing)}; it has {', '.join(table.fieldnames or [])}")
            for row in table:
                rows.append([row[name] for name in names] + [f"{number(row[name]):.8g}" for name in columns] + [part if part == "DB2P8" else "added"])
    rows.sort(key=lambda row: (row[1], float(row[2]), float(row[3])))
    lines = [",".join(row) for row in [names + columns + ["PART"], *rows]]
    write_table(folder / "std5.csv", lines, "d39a46fab7eb1fcb6a187371d9205aaa5714fc41769e81963ccb84223937dad0")


CANCER = {"singh": "b47a248189a91400dfe52656379cc418565800ed6d19ec99c14b3219d61d09e4", "golub": "3f76be6714e599df1692d2e70cccc7837df92c35d2fb2c1fb91861633c494279",
          "khan": "4588ea575e3191d6119f8bb1c571ffc48b26feafc3e4b1a572272ddcfc2855fd", "alon": "8fa6e0bd59cb48454847aa8d1200ae050044db394e5eec8c26399125099c9729b"}


def arrange_cancer(folder):
    """NAME.csv of NAME.RData: the label, then the activity of each gene, 8 significant digits, no header."""
    for path in sorted(folder.glob("*.RData")):
        try:
            data = r_data.read(path)[path.stem]
            labels, genes = data["y"], data["x"]
        except (ValueError, KeyError) as problem:
            raise Failed(f"{path} is not what was expected: {problem}. Delete it and fetch again.")
        lines = [",".join([labels[i], *(f"{gene[i]:.8g}" for gene in genes)]) for i in range(len(labels))]
        write_table(path.with_suffix(".csv"), lines, CANCER[path.stem])


ARRANGED = {"fusion": arrange_fusion, "cancer": arrange_cancer}  # tables made of what was fetched
