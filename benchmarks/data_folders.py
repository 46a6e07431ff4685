"""Folders of the data sets that questions are asked of: as benchmarks/fetch_data calls them, or a part of the set."""

FOLDERS = {"caltech": ("caltech101", "caltech101-subset"), "eurosat": ("eurosat", "eurosat-subset"),
           "higgs": ("higgs", "hep-higgs-uci"), "fusion": ("fusion", "fusion-confinement"), "bace": ("molecules",), "tox21": ("molecules",),
           "pm25": ("pm25", "beijing-pm25"), "cancer": ("cancer", "microarray-cancer"), "climatenet": ("climatenet", "climatenet-points"),
           "darcy": ("darcy", "darcy-flow"), "climate": ("climate-fields",)}


def of(name, data):
    """The folder of its data below `data`, or None."""
    return next((data / folder for folder in FOLDERS[name] if (data / folder).is_dir()), None)


def missing(name, data):
    return f"{data} has no folder {' or '.join(FOLDERS[name])}; give --data DIR, or run benchmarks/fetch_data {FOLDERS[name][0]}"
