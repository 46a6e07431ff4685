"""What is handed in, before a compiler sees it: which files are there, and is each of them text? Nothing else is looked at: a submission becomes a
program of its own (build.py), which may contain what it likes."""

import os
import stat

MOST_KILOBYTES = 256  # of one file
MOST_ENTRIES = 1000  # of a folder that are looked at


def folders_inside(folder):
    """Folders, no links, directly inside."""
    with os.scandir(folder) as entries:
        some = [entry for _, entry in zip(range(MOST_ENTRIES), entries)]
    return sorted(folder / entry.name for entry in some if entry.is_dir(follow_symlinks=False) and entry.name != "__MACOSX")


def find(folder, files):
    """Where the files are: in `folder`, or one or two folders further in, as zip files often bring them."""
    here = folder
    for _ in range(3):
        if any(os.path.lexists(here / name) for name in files):
            return here
        inside = folders_inside(here)
        with_files = [path for path in inside if any((path / name).is_file() for name in files)]
        if len(with_files) != 1 and len(inside) != 1:
            break
        here = (with_files or inside)[0]
    return folder


def read(path):
    """(text or None, what is wrong with the file)."""
    name = path.name
    try:
        place = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None, f"{name} is missing"
    except OSError as error:
        return None, f"{name} is a link; hand in the file itself" if path.is_symlink() else f"{name} cannot be read: {error.strerror}"
    status = os.fstat(place)
    if not stat.S_ISREG(status.st_mode):
        os.close(place)
        return None, f"{name} is {'a folder' if stat.S_ISDIR(status.st_mode) else 'no ordinary file'}; hand in the file itself"
    with open(place, "rb") as file:
        data = file.read((MOST_KILOBYTES << 10) + 1)
    if len(data) > MOST_KILOBYTES << 10:
        return None, f"{name} has {status.st_size >> 10} kB; more than {MOST_KILOBYTES} kB are not read"
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return None, f"{name} is no UTF-8 text (byte {error.start}); save it as UTF-8"
    if not text.strip():
        return None, f"{name} is empty"
    return (None, f"{name} contains a zero byte; is it text?") if "\0" in text else (text.replace("\r\n", "\n"), None)


def collect(folder, lab, others=()):
    """({file: text or None}, {file: what is wrong with it}, what is wrong with all). `others`: labs whose files this may be instead."""
    try:
        folder = find(folder, lab.files)
        texts, faults = {}, {}
        for name in lab.files:
            texts[name], fault = read(folder / name)
            if fault:
                faults[name] = fault
        if any(text is not None for text in texts.values()):
            return texts, faults, None
        there = {entry.name for entry in (folder, *folders_inside(folder)) for entry in os.scandir(entry)}
        if other := next((one for one in others if one.name != lab.name and set(one.files) <= there), None):
            return texts, faults, f"These are the files of lab {other.name}, not of {lab.name}."
        asked = f"Handed in must be {', '.join(lab.files)}."
        return texts, faults, f"{'; '.join(faults.values())}. {asked}"
    except OSError as error:
        return {}, {}, f"The submission cannot be read: {error.strerror}."
