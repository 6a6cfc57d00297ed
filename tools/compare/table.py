"""Tables of results, and the page that holds those of several machines.

A result is a round: the machine and its limits, a group of rows with their units and work, and figures by engine and row.
"""
import re
from statistics import median

BEGIN, END = "<!-- Written by tools/compare: begin -->", "<!-- Written by tools/compare: end -->"
OURS = "Perihelion "
SETS = {"avx512": "AVX-512", "avx2": "AVX2", "neon": "NEON"}
NOTHING = "–"


def sections(results):
    """Text by heading: one section for each machine and instruction set, with a table of models and one of graphs.

    >>> common = {"machine": "M, 2 cores", "table": "models", "group": "m", "versions": {"llama.cpp": "llama-cpp-python 1"}}
    >>> common["limits"] = {"read": 100e9, "f32": 200e9, "f32 avx2": 100e9}
    >>> work = {"unit": "tok/s", "tokens": 1, "bytes": 1e9, "operations": 1e9, "arithmetic": "f32"}
    >>> common["rows"] = {"tg64": work, "start": {"unit": "s"}}
    >>> ours = lambda tokens, start: {"tg64": tokens, "start": start}
    >>> rounds = [(ours(50, 0.1), {"tg64": 40, "start": 0.2}), (ours(60, 0.1), {"tg64": 40, "start": 0.1})]
    >>> results = [common | {"figures": {"Perihelion avx2": here, "llama.cpp": there}} for here, there in rounds]
    >>> print(sections(results)["### M, 2 cores, AVX2"], end="")
    ### M, 2 cores, AVX2
    <BLANKLINE>
    Limits: 100 GB/s of reading, 100 G operations/s in f32.
    <BLANKLINE>
    2 rounds. llama.cpp (llama-cpp-python 1).
    <BLANKLINE>
    | | | Perihelion | of the limit | llama.cpp | ratio |
    |---|---|---:|---:|---:|---:|
    | m | tg64 | 55.0 tok/s | 55 % | 40.0 | 1.38 [1.25-1.50] |
    | m | start | 0.100 s | – | 0.150 | 1.50 [1.00-2.00] |
    """
    found = {}
    for machine in unique(result["machine"] for result in results):
        here = [result for result in results if result["machine"] == machine]
        for instruction_set in unique(engine for result in here for engine in result["figures"]):
            if instruction_set.startswith(OURS):
                instruction_set = instruction_set.removeprefix(OURS)
                heading = f"### {machine}, {SETS.get(instruction_set, instruction_set)}"
                found[heading] = section(heading, here, instruction_set)
    return found


def section(heading, results, instruction_set):
    limits = limits_of(results, instruction_set)
    parts = [heading, limits_text(limits)]
    for kind in ("models", "graphs"):
        parts += tables([result for result in results if result["table"] == kind], OURS + instruction_set, limits)
    return "\n\n".join(parts) + "\n"


def tables(results, ours, limits):
    """A line about the rounds and the versions, and the table of models or of graphs."""
    results = [result for result in results if ours in result["figures"]]
    if not results:
        return []
    peers = unique(peer for result in results for peer in result["versions"])
    names = unique(f"{peer} ({version})" for result in results for peer, version in result["versions"].items())
    lines = ["| | | Perihelion | of the limit |" + "".join(f" {peer} | ratio |" for peer in peers)]
    lines.append("|---|---|---:|---:|" + "---:|---:|" * len(peers))
    rounds = {}
    for group in unique(result["group"] for result in results):
        of_group = [result for result in results if result["group"] == group]
        rounds[group] = len(of_group)
        for row in unique(row for result in of_group for row in result["rows"]):
            of_row = [result for result in of_group if row in result["rows"]]
            cells = row_cells(of_row, row, of_row[0]["rows"][row], ours, peers, limits)
            lines.append("| " + " | ".join([group, row, *cells]) + " |")
    return [f"{rounds_text(rounds)}. {'; '.join(names)}.", "\n".join(lines)]


def row_cells(results, row, work, ours, peers, limits):
    """Our figure, its part of the limit, and for each peer its figure and the ratio with its range."""
    faster = 1 if work["unit"].endswith("/s") else -1
    here = [result["figures"][ours][row] for result in results]
    cells = [f"{shown(median(here))} {work['unit']}", share(median(here), work, limits)]
    for peer in peers:
        both = [result["figures"] for result in results if row in result["figures"].get(peer, {})]
        if not both:
            cells += [NOTHING, NOTHING]
            continue
        ratios = [(figures[ours][row] / figures[peer][row]) ** faster for figures in both]
        there = median(figures[peer][row] for figures in both)
        spread = f" [{min(ratios):.2f}-{max(ratios):.2f}]" if len(ratios) > 1 else ""
        cells += [shown(there), f"{median(ratios):.2f}{spread}"]
    return cells


def share(value, work, limits):
    """How much of the machine's speed in reading or in arithmetic, whichever limits the row, is reached."""
    arithmetic = work.get("arithmetic")
    if arithmetic not in limits:
        return NOTHING
    seconds = max(work["bytes"] / limits["read"], work["operations"] / limits[arithmetic])
    taken = work["tokens"] / value if work["unit"] == "tok/s" else value / 1e3
    return f"{100 * seconds / taken:.0f} %"


def limits_of(results, instruction_set):
    """Bytes or operations a second of each kind with the instruction set, the median of the rounds."""
    every = [result["limits"] for result in results]
    speed = lambda limits, kind: limits.get(f"{kind} {instruction_set}", limits.get(kind, 0))
    speeds = {kind: median(speed(limits, kind) for limits in every) for kind in ("read", "f32", "int8", "bf16")}
    return {kind: speed for kind, speed in speeds.items() if speed}


def limits_text(limits):
    arithmetic = [f"{speed / 1e9:.0f} G operations/s in {name}" for name, speed in limits.items() if name != "read"]
    return "Limits: " + ", ".join([f"{limits['read'] / 1e9:.0f} GB/s of reading", *arithmetic]) + "."


def rounds_text(rounds):
    """
    >>> rounds_text({"a": 5, "b": 5, "c": 2})
    '5 rounds (c: 2)'
    >>> rounds_text({"a": 1})
    '1 round'
    """
    most = max(rounds.values())
    fewer = ", ".join(f"{group}: {count}" for group, count in rounds.items() if count < most)
    return f"{most} round{'s' * (most > 1)}" + (f" ({fewer})" if fewer else "")


def shown(value):
    """Three digits at least.

    >>> shown(1234.5), shown(81.72), shown(0.01234)
    ('1,234', '81.7', '0.0123')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def unique(items):
    return list(dict.fromkeys(items))


def merge(page, new):
    """The page with these sections in place of those with the same headings, between the markers that it has.

    >>> page = f"# Page\\n{BEGIN}\\n\\n### A\\n\\nold\\n\\n### B\\n\\nkept\\n\\n{END}\\nrest\\n"
    >>> merge(page, {"### C": "### C\\n\\nadded\\n", "### A": "### A\\n\\nnew\\n"}).split("\\n\\n")[1:]
    ['### A', 'new', '### B', 'kept', '### C', 'added', '<!-- Written by tools/compare: end -->\\nrest\\n']
    >>> merge("# Page", {})
    Traceback (most recent call last):
    SystemExit: the page has no line <!-- Written by tools/compare: begin -->
    """
    for marker in (BEGIN, END):
        if marker not in page:
            raise SystemExit(f"the page has no line {marker}")
    before, rest = page.split(BEGIN, 1)
    old, after = rest.split(END, 1)
    kept = {text.split("\n", 1)[0]: text for text in re.split(r"^(?=### )", old, flags=re.M)[1:]}
    return before + "\n\n".join([BEGIN, *map(str.strip, (kept | new).values()), END]) + after
