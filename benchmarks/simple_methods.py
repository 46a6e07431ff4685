"""Simple methods for the questions of benchmarks/workloads, by scikit-learn: what a network has to beat. benchmarks/baselines runs this file.

    python3 simple_methods.py NAME DATA_FOLDER

prints a JSON list of {"method", "figure", "values"}: one value a fold, of the rows that are held out.
"""

import csv
import gzip
import io
import json
import pathlib
import sys
import tarfile
import zipfile

import numpy
from PIL import Image
from scipy.io import netcdf_file
from sklearn.compose import make_column_transformer
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import f1_score, r2_score, roc_auc_score
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut, StratifiedKFold, StratifiedShuffleSplit
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, StandardScaler


def rows(folder, name, header=True):
    """Columns by name, as text; without a header c1, c2, …"""
    path = next(path for ending in ("", ".gz", ".zip") if (path := pathlib.Path(folder) / f"{name}{ending}").exists())
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if path.suffix == ".zip":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            data = archive.read(archive.namelist()[0])
    lines = list(csv.reader(io.StringIO(data.decode())))
    names = lines.pop(0) if header else [f"c{i + 1}" for i in range(len(lines[0]))]
    return {name: numpy.array(column) for name, column in zip(names, zip(*lines))}


def numbers(table, names):
    return numpy.stack([table[name].astype(float) for name in names], axis=1)


def over(folds, method, x, y, figure, predict="predict"):
    """The figure of each fold."""
    values = []
    for train, test in folds:
        method.fit(x[train], y[train])
        found = getattr(method, predict)(x[test])
        values.append(float(figure(y[test], found[:, 1] if found.ndim == 2 and predict == "predict_proba" else found)))
    return values


def rmse(truth, found):
    return float(numpy.sqrt(numpy.mean((truth - found) ** 2)))


def higgs(folder):
    table = rows(folder, "higgs.csv")
    y = table.pop("label").astype(float).astype(int)
    x = numbers(table, list(table))
    methods = {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "MLP": make_pipeline(StandardScaler(), MLPClassifier(hidden_layer_sizes=(64, 64), alpha=1, early_stopping=True, random_state=0)),
        "gradient boosting": HistGradientBoostingClassifier(learning_rate=0.05, max_iter=300, l2_regularization=1, random_state=0),
    }
    for name, method in methods.items():
        folds = StratifiedKFold(5, shuffle=True, random_state=0).split(x, y)
        yield name, "AUC", over(folds, method, x, y, roc_auc_score, "predict_proba")


class PowerLawAnd:
    """A power law, and another method for what it leaves."""

    def __init__(self, rest):
        self.line, self.rest = LinearRegression(), rest

    def fit(self, x, y):
        self.line.fit(x, y)
        self.rest.fit(x, y - self.line.predict(x))

    def predict(self, x):
        return self.line.predict(x) + self.rest.predict(x)


def fusion(folder):
    table = rows(folder, "std5.csv")
    x = numpy.log(numbers(table, ["IP", "BT", "NEL", "PLTH", "RGEO", "KAREA", "EPS", "MEFF"]))
    y = numpy.log(table["TAUTH"].astype(float))
    discharge = numpy.array([f"{tok} {shot}" for tok, shot in zip(table["TOK"], table["SHOT"])])
    device = numpy.array([{"AUGW": "AUG", "JETILW": "JET"}.get(tok, tok) for tok in table["TOK"]])  # whatever their walls are of
    large = [each for each in sorted(set(device)) if (device == each).sum() >= 40]  # devices left out in turn
    mlp = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(64, 64), alpha=1, early_stopping=True, random_state=0))
    methods = {"power law": LinearRegression(), "gradient boosting": HistGradientBoostingRegressor(random_state=0), "MLP": mlp,
               "power law and gradient boosting": PowerLawAnd(HistGradientBoostingRegressor(random_state=0)), "power law and MLP": PowerLawAnd(mlp)}
    for name, method in methods.items():
        yield name, "RMSE of ln τ, by discharge", over(GroupKFold(5).split(x, y, discharge), method, x, y, rmse)
        out = [(numpy.flatnonzero(device != each), numpy.flatnonzero(device == each)) for each in large]
        yield name, f"RMSE of ln τ, each of {len(large)} devices left out", over(out, method, x, y, rmse)


def bace(folder):
    table = rows(folder, "bace.csv")
    y = table["pIC50"].astype(float)
    x = numbers(table, [name for name in table if name not in ("mol", "CID", "Class", "Model", "pIC50", "canvasUID")])
    for name, method in {"ridge on quantiles": make_pipeline(QuantileTransformer(n_quantiles=100, random_state=0), Ridge(10)),
                         "extra trees": ExtraTreesRegressor(300, max_features=0.3, random_state=0),
                         "gradient boosting": HistGradientBoostingRegressor(random_state=0)}.items():
        yield name, "R²", over(KFold(5, shuffle=True, random_state=0).split(x), method, x, y, r2_score)


def tox21(folder):
    table = rows(folder, "tox21.csv")
    molecules = table["smiles"]
    values = {}
    for task in [name for name in table if name not in ("mol_id", "smiles")]:
        known = table[task] != ""
        text, y = molecules[known], table[task][known].astype(int)
        method = make_pipeline(CountVectorizer(analyzer="char", lowercase=False, ngram_range=(1, 5), min_df=5, binary=True), LogisticRegression(C=0.05, max_iter=300))
        for fold, (train, test) in enumerate(GroupKFold(5).split(text, y, text)):
            method.fit(text[train], y[train])
            values.setdefault(fold, []).append(roc_auc_score(y[test], method.predict_proba(text[test])[:, 1]))
    yield "logistic regression on n-grams of bytes", "mean AUC of 12 tasks", [float(numpy.mean(each)) for each in values.values()]


def pm25(folder):
    table = rows(folder, "PRSA_data_2010.1.1-2014.12.31.csv")
    dust = numpy.array([float(cell) if cell not in ("", "NA") else numpy.nan for cell in table["pm2.5"]])
    wind = OneHotEncoder(sparse_output=False).fit_transform(table["cbwd"].reshape(-1, 1))
    hour, month = table["hour"].astype(float), table["month"].astype(float)
    clock = numpy.stack([f(2 * numpy.pi * t) for t in (hour / 24, month / 12) for f in (numpy.sin, numpy.cos)], axis=1)
    weather = numpy.concatenate([numbers(table, ["DEWP", "TEMP", "PRES", "Iws", "Is", "Ir"]), wind, clock], axis=1)
    last = numpy.array(dust)  # the newest known value
    for i in range(1, len(last)):
        last[i] = last[i - 1] if numpy.isnan(last[i]) else last[i]
    history = 12
    past = numpy.stack([numpy.roll(last, k) for k in range(history)], axis=1)
    for ahead in (1, 6):
        at = numpy.arange(history + 24, len(dust) - ahead)
        at = at[~numpy.isnan(dust[at + ahead]) & ~numpy.isnan(past[at]).any(axis=1)]
        x, y, now = numpy.concatenate([past, weather], axis=1)[at], dust[at + ahead], last[at]
        test = table["year"][at + ahead] == "2014"
        figure = f"RMSE of µg/m³, {ahead} h ahead"
        yield "persistence", figure, [rmse(y[test], now[test])]
        for name, method in {"ridge": make_pipeline(StandardScaler(), Ridge(1)), "gradient boosting": HistGradientBoostingRegressor(learning_rate=0.05, max_iter=300, random_state=0),
                             "MLP": make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(64, 64), alpha=1, early_stopping=True, random_state=0))}.items():
            method.fit(x[~test], (y - now)[~test])
            yield name, figure, [rmse(y[test], now[test] + method.predict(x[test]))]


def cancer(folder):
    for name, logarithm in (("singh", False), ("golub", True), ("khan", False), ("alon", True)):
        table = rows(folder, f"{name}.csv", header=False)
        y = table.pop("c1")
        x = numbers(table, list(table))
        if logarithm:
            x = numpy.log(numpy.maximum(x, 1))
        values = []
        for seed in range(10):
            folds = StratifiedKFold(5, shuffle=True, random_state=seed).split(x, y)
            method = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300))
            values += [float(numpy.mean(over(folds, method, x, y, lambda truth, found: numpy.mean(truth == found))))]
        yield "logistic regression" + (" of logarithms" if logarithm else ""), f"accuracy, {name}", values


def climatenet(folder):
    table = rows(folder, "train.csv")
    y = table["Label"].astype(int)
    x = numbers(table, [name for name in table if name not in ("SNo", "time", "Label")])
    test = table["time"] >= "20050624"
    for name, method in {"logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
                         "gradient boosting, balanced": HistGradientBoostingClassifier(class_weight="balanced", random_state=0)}.items():
        method.fit(x[~test], y[~test])
        yield name, "macro F1", [float(f1_score(y[test], method.predict(x[test]), average="macro"))]


def darcy(folder):
    x, y, test_x, test_y = (numpy.load(io.BytesIO(gzip.decompress((pathlib.Path(folder) / f"{name}.npy.gz").read_bytes()))).reshape(-1, 256).astype(float)
                            for name in ("train_16_x", "train_16_y", "test_16_x", "test_16_y"))

    def relative_l2(found):
        return [float(numpy.mean(numpy.linalg.norm(found - test_y, axis=1) / numpy.linalg.norm(test_y, axis=1)))]

    mean = y.mean(axis=0)
    yield "mean field", "relative L2", relative_l2(mean)
    yield "kernel ridge", "relative L2", relative_l2(mean + KernelRidge(kernel="rbf", gamma=0.01, alpha=0.01).fit(x, y - mean).predict(test_x))


def climate(folder):
    """Anomalies at all cells of two members of an ensemble from 410 cells, drawn five times."""
    files = [netcdf_file(pathlib.Path(folder) / f"TREFHT.B06.{member}.atm.1890-1999ANN.nc", mmap=False) for member in (57, 59, 66, 67)]
    fields = [file.variables["TREFHT"].data.astype(float).reshape(110, -1) for file in files]
    north, east = (numpy.deg2rad(grid.ravel()) for grid in numpy.meshgrid(files[0].variables["lat"].data, files[0].variables["lon"].data, indexing="ij"))
    train = numpy.concatenate([fields[0], fields[2]])
    mean, deviation, area = train.mean(axis=0), train.std(axis=0), numpy.cos(north)
    truth = numpy.concatenate([fields[1], fields[3]]) - mean
    points = numpy.stack([numpy.cos(north) * numpy.cos(east), numpy.cos(north) * numpy.sin(east), numpy.sin(north)], axis=1)
    ridge, kriging = [], []
    for seed in range(5):
        known = numpy.random.default_rng(seed).permutation(len(area))[:410]
        covariance = numpy.exp(-numpy.arccos(numpy.clip(points @ points[known].T, -1, 1)) / 0.2)
        weights = numpy.linalg.solve(covariance[known] + 0.05 * numpy.eye(len(known)), covariance.T)
        for values, found in ((ridge, Ridge(10).fit(train[:, known] - mean[known], train - mean).predict(truth[:, known])),
                              (kriging, truth[:, known] / deviation[known] @ weights * deviation)):
            values.append(float(1 - (area * (found - truth) ** 2).sum() / (area * truth ** 2).sum()))
    yield "ridge", "R² of anomalies, by area", ridge
    yield "kriging", "R² of anomalies, by area", kriging


def images(folder, edge):
    """Images of an archive with a folder a class, edge × edge × 3 in [0, 1], and their classes."""
    pixels, classes = [], []
    with tarfile.open(next(pathlib.Path(folder).glob("*.tar*"))) as archive:
        for member in sorted((m for m in archive if m.name.lower().endswith((".jpg", ".jpeg"))), key=lambda m: m.name):
            picture = Image.open(archive.extractfile(member)).convert("RGB").resize((edge, edge), Image.Resampling.BILINEAR)
            pixels.append(numpy.asarray(picture, dtype=numpy.float32) / 255)
            classes.append(member.name.split("/")[-2])
    return numpy.stack(pixels), numpy.array(classes)


def gradient_histograms(pixels, cell):
    """Dalal & Triggs (2005): nine directions in cells, each block of 2 × 2 cells by its length, cut at 0.2."""
    grey = pixels @ numpy.array([0.299, 0.587, 0.114], dtype=numpy.float32)
    down, right = numpy.gradient(grey, axis=(1, 2))
    strength, bins = numpy.hypot(down, right), numpy.floor((numpy.arctan2(down, right) % numpy.pi) / numpy.pi * 9).astype(int) % 9
    n, cells = len(grey), grey.shape[1] // cell
    of = numpy.stack([numpy.where(bins == k, strength, 0).reshape(n, cells, cell, cells, cell).sum((2, 4)) for k in range(9)], axis=3)
    blocks = numpy.concatenate([of[:, a:cells - 1 + a, b:cells - 1 + b] for a in (0, 1) for b in (0, 1)], axis=3)
    for limit in (0.2, 1):
        blocks = numpy.minimum(blocks / (numpy.linalg.norm(blocks, axis=3, keepdims=True) + 1e-3), limit)
    return blocks.reshape(n, -1)


def colour_histograms(pixels, parts, levels=4):
    """Shares of levels³ colours in each of parts × parts fields of the image."""
    n, size = len(pixels), pixels.shape[1] // parts
    code = (numpy.minimum(pixels * levels, levels - 1).astype(int) * [levels * levels, levels, 1]).sum(3)
    fields = code.reshape(n, parts, size, parts, size).transpose(0, 1, 3, 2, 4).reshape(n, parts * parts, -1)
    return numpy.sqrt(numpy.stack([(fields == k).mean(2) for k in range(levels**3)], axis=2)).reshape(n, -1)


def accuracy(truth, found):
    return float(numpy.mean(truth == found))


def caltech(folder):
    pixels, y = images(folder, 128)
    features = {"gradients": gradient_histograms(pixels, 16), "gradients and colours": numpy.concatenate([gradient_histograms(pixels, 16), colour_histograms(pixels, 2)], axis=1)}
    for name, x in features.items():
        method = make_pipeline(StandardScaler(), LogisticRegression(C=1e-3, max_iter=300))
        folds = StratifiedShuffleSplit(6, test_size=0.25, random_state=0).split(x, y)
        yield f"logistic regression, histograms of {name}", "accuracy", over(folds, method, x, y, accuracy)


def eurosat(folder):
    pixels, y = images(folder, 64)
    mean, spread = pixels.mean((1, 2)), pixels.std((1, 2))
    levels = numpy.quantile(pixels.reshape(len(pixels), -1, 3), numpy.linspace(0.05, 0.95, 7), axis=1).transpose(1, 0, 2).reshape(len(pixels), -1)
    x = numpy.concatenate([mean, spread, levels, colour_histograms(pixels, 1), gradient_histograms(pixels, 32)], axis=1)
    for name, method in {"logistic regression": make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500)),
                         "gradient boosting": HistGradientBoostingClassifier(max_iter=100, random_state=0)}.items():
        folds = StratifiedShuffleSplit(3, test_size=0.25, random_state=0).split(x, y)
        yield f"{name}, colours and gradients", "accuracy", over(folds, method, x, y, accuracy)


METHODS = {"caltech": caltech, "eurosat": eurosat, "higgs": higgs, "fusion": fusion, "bace": bace, "tox21": tox21, "pm25": pm25, "cancer": cancer, "climatenet": climatenet, "darcy": darcy, "climate": climate}

if __name__ == "__main__":
    json.dump([{"method": method, "figure": figure, "values": values} for method, figure, values in METHODS[sys.argv[1]](sys.argv[2])], sys.stdout)
