"""Sets of headers that many headers include, precompiled by clang: those compile in half of the time, and still alone.

A header X may begin with a precompiled set only if X itself includes every header of the set, directly or through others, outside of
any #if. Then nothing is there that X would not have brought: X's own includes come before its code (else it gets no set), and each
of them is compiled alone as well, so that none leans on what the set holds. A missing include is found as it is without.
"""

import collections
import heapq
import re
import subprocess

FOREIGN_BYTES = 20_000  # what an include of another library is taken to weigh
LEAST_GAIN = 300_000  # bytes that need not be read again, of all headers together, for which a set is made


def includes_of(path):
    """Names that a header includes outside of any #if; none where code stands before an include."""
    depth, code, names = 0, False, []
    for line in map(str.strip, path.read_text().splitlines()):
        if re.match(r"#\s*if", line):
            depth += 1
        elif re.match(r"#\s*endif", line):
            depth -= 1
        elif found := re.match(r"#\s*include <([^>]+)>", line):
            if code:
                return []
            names += [found[1]] * (depth == 0)
        elif line and not line.startswith(("#", "//")):
            code = True
    return names


def choose(include, headers):
    """For each header that gains by it, the set of Cairn's headers that it begins with."""
    direct = {path.relative_to(include).as_posix(): includes_of(path) for path in include.rglob("*.hpp")}
    closures, foreign = {}, {}

    def closure(name):  # of Cairn's own headers; there are no cycles, include_directions.py sees to that
        if name not in closures:
            own = [other for other in direct[name] if other in direct]
            closures[name] = frozenset(own).union(*map(closure, own))
            foreign[name] = frozenset(set(direct[name]) - direct.keys())
        return closures[name]

    for name in headers:
        closure(name)
    weights = {}

    def weight(chosen):
        if chosen not in weights:
            libraries = frozenset().union(*(foreign[name] for name in chosen))
            weights[chosen] = sum((include / name).stat().st_size for name in chosen) + FOREIGN_BYTES * len(libraries)
        return weights[chosen]

    # A set is what two headers have in common. Greedy: the set that saves most beside those that were taken, again and
    # again.
    common = collections.Counter(closures[a] & closures[b] for a in headers for b in headers if a <= b)
    users = {chosen: [name for name in headers if chosen <= closures[name]] for chosen in common if chosen}
    base = dict.fromkeys(headers, frozenset())

    def gain(chosen):
        return sum(max(0, weight(chosen) - weight(base[name])) for name in users[chosen]) - 2 * weight(chosen)

    heap = [(-gain(chosen), sorted(chosen), chosen) for chosen in users]
    heapq.heapify(heap)
    while heap:
        names, chosen = heap[0][1:]
        now = gain(chosen)
        if now < LEAST_GAIN:
            heapq.heappop(heap)
        elif now == -heap[0][0]:
            heapq.heappop(heap)
            for name in users[chosen]:
                base[name] = max(base[name], chosen, key=weight)
        else:  # another set took some of it
            heapq.heapreplace(heap, (-now, names, chosen))
    return {name: chosen for name, chosen in base.items() if chosen}


def make(include, headers, precompile, folder, pool):
    """Compiles the sets into `folder` with `precompile`; of each header that has one, the file. A set that does not compile is left out: the
    fault is seen where its headers are compiled alone."""
    base = choose(include, headers)
    files = {chosen: folder / f"{number}.pch" for number, chosen in enumerate(sorted(set(base.values()), key=sorted))}

    def compiles(chosen):
        source = "".join(f"#include <{name}>\n" for name in sorted(chosen))
        return subprocess.run([*precompile, "-o", files[chosen]], input=source, capture_output=True, text=True).returncode == 0

    made = {chosen for chosen, good in zip(files, pool.map(compiles, files)) if good}
    return {name: str(files[chosen]) for name, chosen in base.items() if chosen in made}
