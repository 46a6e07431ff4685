"""The result of a search: one SQL statement over SQLite in memory, filled from the runs' records and manifests.
    node(run, parent, stage, epochs, settings, leaf)    a prefix of trials: its directory; leaf: 1 where a trial ends
    figure(run, name, value)                            numbers of its record; "edge_steps": steps of its own stage
    version(run, version, bytes, digest)                saved states, the newest last
"""

import sqlite3

from search_space.runs import versions

SQL = """WITH RECURSIVE path(leaf, run) AS (
    SELECT run, run FROM node WHERE leaf
    UNION ALL SELECT path.leaf, node.parent FROM path JOIN node USING (run) WHERE node.parent IS NOT NULL)
SELECT path.leaf AS run, leaf.settings, leaf.epochs,
       (SELECT value FROM figure WHERE run = path.leaf AND name = '{figure}') AS {figure},
       (SELECT sum(value) FROM figure JOIN path AS p USING (run) WHERE p.leaf = path.leaf AND name = 'edge_steps') AS steps,
       (SELECT sum(value) FROM figure JOIN path AS p USING (run) WHERE p.leaf = path.leaf AND name = 'seconds') AS seconds,
       (SELECT sum(bytes) FROM version JOIN path AS p USING (run) WHERE p.leaf = path.leaf) AS bytes,
       (SELECT digest FROM version WHERE run = path.leaf ORDER BY version DESC LIMIT 1) AS digest
FROM path JOIN node AS leaf ON leaf.run = path.leaf GROUP BY path.leaf ORDER BY {figure} IS NULL, {figure} {order}, path.leaf"""


def settings_text(node):
    """What its stages set, by stage."""
    return " | ".join(" ".join(f"{key.split('.')[-1]}={value if value != '' else '-'}" for key, value in chosen) or "-" for _, chosen in node.path)


def database(runs, nodes, leaves):
    db = sqlite3.connect(":memory:")
    db.executescript("""CREATE TABLE node(run TEXT, parent TEXT, stage INTEGER, epochs INTEGER, settings TEXT, leaf INTEGER);
        CREATE TABLE figure(run TEXT, name TEXT, value REAL);
        CREATE TABLE version(run TEXT, version TEXT, bytes INTEGER, digest TEXT);""")
    for node in nodes:
        run, result = runs.space.name(node), runs.result(node) or {}
        db.execute("INSERT INTO node VALUES (?, ?, ?, ?, ?, ?)", (run, runs.space.name(node.parent) if node.parent else None, len(node.path), node.epochs, settings_text(node), node in leaves))
        if "steps" in result:
            before = runs.result(node.parent)["steps"] if node.parent else 0
            result = {**result, "edge_steps": result["steps"] - before}
        db.executemany("INSERT INTO figure VALUES (?, ?, ?)", [(run, key, value) for key, value in result.items() if type(value) in (int, float)])
        db.executemany("INSERT INTO version VALUES (?, ?, ?, ?)", [(run, *version) for version in versions(runs.directory(node))])
    return db


def rows(cursor):
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row)) for row in cursor]


def steps_of(runs, nodes):
    """Sum of the steps of these nodes' own stages."""
    return sum(runs.result(node)["steps"] - (runs.result(node.parent)["steps"] if node.parent else 0) for node in nodes if "steps" in (runs.result(node) or {}))


def show(table):
    """Rows as aligned columns."""
    if not table:
        return print("no rows")
    cells = [list(table[0])] + [[text_of(value) for value in row.values()] for row in table]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def text_of(value):
    return "-" if value is None else f"{value:.5g}" if type(value) is float and value != int(value) else str(int(value)) if type(value) is float else str(value)
