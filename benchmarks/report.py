"""The results for people and for programs: as text, Markdown, JSON and a chart."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measure import Case, Entry, Ratio, Target, Timing
from benchmarks.oracles import WAYS

COMMAND = "python3 dev.py bench"


def seconds(s: float) -> str:
    """A time with three digits and its unit: 0.0123 becomes "12.3 ms"."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if s >= size:
            return f"{s / size:.3g} {unit}"
    return f"{s * 1e9:.3g} ns"


def number(x: float) -> str:
    """A number as text: whole numbers in full, others with three digits."""
    if x == int(x) and abs(x) < 1e15:
        return f"{int(x):,}"
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def _compact(x: float) -> str:
    """A number for an axis: 40k for 40,000, and 4M for 4,000,000."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if x >= size:
            return f"{x / size:g}{unit}"
    return f"{x:g}"


def _time(entry: Entry) -> str:
    """The median time with quartiles and the number of runs, or why there is none."""
    if entry.timing is None:
        return entry.why_not or ""
    low, high = entry.timing.spread
    runs = len(entry.timing.seconds)
    if runs == 1:
        return f"{seconds(entry.timing.median)} (1 run)"
    return f"{seconds(entry.timing.median)} ({seconds(low)} to {seconds(high)}, {runs} runs)"


def _figures(entry: Entry) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in entry.figures.items())


def _measured(target: Target) -> str:
    shown = number(target.value)
    if target.turns == 1:
        shown += " (1 run)"
    elif target.spread is not None:
        shown += f" ({number(target.spread[0])} to {number(target.spread[1])})"
    return shown


def _limit(target: Target) -> str:
    return f"{'>=' if target.at_least else '<='} {number(target.limit)}"


def _verdict(target: Target, quick: bool) -> str:
    if quick:
        return "not judged"
    if not target.met:
        return "**missed**"
    return "met, narrowly" if target.narrow else "met"


def as_json(cases: list[Case], machine: dict[str, Any], quick: bool) -> str:
    """Everything that was found, with every single timing."""
    found = []
    for case in cases:
        entry = asdict(case)
        for target, plain in zip(case.targets, entry["targets"], strict=True):
            plain["met"] = target.met
        found.append(entry)
    return json.dumps({"quick": quick, "machine": machine, "cases": found}, indent=1)


def _head(machine: dict[str, Any], quick: bool) -> list[str]:
    """The paragraphs that say where and how the figures were measured."""
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    libraries = ", ".join(
        f"{p['internal_api']} {p['num_threads']}" for p in machine["threads"]["libraries"]
    )
    lines = [
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['system']}, Python {machine['python']}, {machine['date']}, "
        f"load before the run {machine['load']}; `{machine['command']}` at commit "
        f"{machine['commit']}.",
        f"Versions: {versions}.",
        f"Threads: np.sort, gcfcp's own loops and the LPs use one; {libraries or 'BLAS unknown'}.",
        "Times are processor time, of all threads of the process: medians (quartiles, number of "
        "runs) of runs in turns. Ratios are medians (quartiles) over the turns of the ratio within "
        "a turn; a target is met narrowly if the quartile on its side is beyond it.",
    ]
    if quick:
        lines.insert(0, "**Quick mode: it shows that the benchmark works; its times mean little.**")
    return lines


def as_markdown(cases: list[Case], machine: dict[str, Any], quick: bool) -> str:
    """Everything that was found, as one page."""
    lines = ["# Benchmarks", "", f"Made by `{COMMAND}`.", "", *_paragraphs(_head(machine, quick))]
    lines += ["## Targets", "", *target_table(cases, quick), "", "## Everything", ""]
    for case in cases:
        lines += [f"### {case.what}: {case.data}", "", "| what | time | figures |", "|---|---|---|"]
        lines += [f"| {e.name} | {_time(e)} | {_figures(e)} |" for e in case.entries]
        lines.append("")
        lines += [f"- Checked: {text}." for text in case.checks]
        lines += [f"- {text}." for text in (*case.notes, *case.says)]
        lines.append("")
    return "\n".join(lines)


def as_targets(cases: list[Case], machine: dict[str, Any], quick: bool) -> str:
    """The targets, and where they were measured. The documentation includes this."""
    made = f"<!-- made by `{COMMAND}`; do not edit -->"
    table = target_table(cases, quick)
    said = [f"- {text}." for case in cases for text in case.says]
    below = ["", *said] if said else []
    return "\n".join([made, "", *_paragraphs(_head(machine, quick)), *table, *below, ""])


BEGINS, ENDS = f"<!-- made by `{COMMAND}`; do not edit -->", "<!-- until here -->"


def into_readme(text: str, cases: list[Case], machine: dict[str, Any]) -> str:
    """The README with a new table of headlines between its two marks."""
    by_key = {case.key: case for case in cases}
    rows = [row for key in by_key for row in _headline(key, by_key[key])]
    targets = [target for case in cases for target in case.targets]
    met = [target for target in targets if target.met]
    narrowly = sum(target.narrow for target in met)
    absent = sorted(
        {e.name for c in cases for e in c.entries if (e.why_not or "")[:4] != "not " and e.why_not}
    )
    lacking = f" Not measured: {', '.join(absent)}." if absent else ""
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['date'][:10]}"
    made = [
        BEGINS,
        "",
        "| | gcfcp | beside it, on the same data in the same run |",
        "|---|---|---|",
        *(f"| {what} | {ours} | {others} |" for what, ours, others in rows),
        "",
        f"(Medians of processor time, and of the ratios of each turn; {where}, a virtual machine. "
        f"{len(met)} of {len(targets)} [targets](benchmarks/results/targets.md) met in this run, "
        f"{narrowly} of them narrowly; [all figures](benchmarks/results/results.md).{lacking})",
        "",
        ENDS,
    ]
    before, rest = text.split(BEGINS)
    return before + "\n".join(made) + rest.split(ENDS)[1]


# For each case: its short name, the contestant whose time is shown as ours, and the rivals shown.
_HEADLINES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "digest-10000000": (
        "digest of 10,000,000 scores, error certified",
        "gcfcp upper",
        ("np.sort", "datasketches", "fastdigest"),
    ),
    "summarize": (
        "a whole client, 10,000,000 records in 8 overlapping groups",
        "gcfcp",
        ("np.sort",),
    ),
    "table-imagenet": (
        "all 50 thresholds of 40,000 records, exact",
        "gcfcp, all atoms",
        tuple(f"HiGHS {way}, one atom" for way in WAYS),
    ),
    "points": (
        "a test point, calibration included, exact",
        "gcfcp, exact",
        ("conditionalconformal", "MAPIE conditional", "the paper's bisection, records"),
    ),
    "sets": ("prediction sets, 10,000 rows of 1,000 labels", "gcfcp", ("bare comparison",)),
    "lookup": (
        "thresholds of 1,000,000 rows, 16 groups",
        "gcfcp",
        ("by hand: bits packed flat, one look into a table",),
    ),
}


def _headline(key: str, case: Case) -> list[tuple[str, str, str]]:
    """The row of a case in the README's table, or nothing if it has none."""
    if key == "clients":
        last = case.entries[-1]
        clients = last.name.removeprefix("K = ").split(" ")[0]
        memory = last.figures["peak MB"]
        took = "" if last.timing is None else seconds(last.timing.median)
        size = f"{last.figures['bytes a client'] / 1e3:.3g} kB a client"
        return [(f"{clients} clients, from bytes to table", took, f"{size}, {memory:.0f} MB held")]
    if key not in _HEADLINES:
        return []
    what, ours, rivals = _HEADLINES[key]
    timings = {e.name: e for e in case.entries}
    own = timings[ours].timing
    if own is None:
        return []
    shown = []
    for name in rivals:
        entry = timings.get(name)
        if entry is not None and entry.timing is not None:
            times = number(Ratio.of(entry.timing, own).median)
            shown.append(f"{name}: {seconds(entry.timing.median)} ({times} x)")
        elif entry is not None:
            shown.append(f"{name}: {entry.why_not}")
    return [(what, seconds(own.median), "; ".join(shown))]


def _paragraphs(lines: list[str]) -> list[str]:
    return [part for line in lines for part in (line, "")]


def target_table(cases: list[Case], quick: bool) -> list[str]:
    """All targets as the lines of a Markdown table. In quick mode they are not judged."""
    lines = [
        "| what, on which data | ratio or figure | target | measured | |",
        "|---|---|---|---|---|",
    ]
    for case in cases:
        for place, target in enumerate(case.targets):
            what = "" if place else f"**{case.what}**: {case.data}"
            lines.append(
                f"| {what} | {target.claim} | {_limit(target)} | {_measured(target)} | "
                f"{_verdict(target, quick)} |"
            )
    return lines


def as_text(case: Case, quick: bool) -> str:
    """One case as text for the terminal."""
    width = max(len(e.name) for e in case.entries)
    return "\n".join(
        [
            f"{case.what}: {case.data}",
            *(f"  {e.name:{width}}  {_time(e)}  {_figures(e)}".rstrip() for e in case.entries),
            *(
                f"  -> {t.claim}: {_measured(t)}; target {_limit(t)}: "
                + _verdict(t, quick).strip("*")
                for t in case.targets
            ),
        ]
    )


# --- the chart -----------------------------------------------------------------------------------

# The colours of Okabe and Ito, which every kind of colour vision tells apart. Markers differ too.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#7F7F7F"


def draw(cases: list[Case], folder: Path) -> list[Path]:
    """Draw the chart: the peers' times as multiples of gcfcp's, and three curves of growth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    by_key = {case.key: case for case in cases}
    settings = {"font.size": 10, "svg.hashsalt": "gcfcp", "axes.spines.right": False}
    with plt.rc_context({**settings, "axes.spines.top": False}):
        panels = [panel for keys, panel in _PANELS if any(k.startswith(keys) for k in by_key)]
        rows = max(1, -(-len(panels) // 2))
        figure = plt.figure(figsize=(11, 3.9 * rows), layout="constrained")
        for place, panel in enumerate(panels):
            alone = place == len(panels) - 1 and place % 2 == 0
            panel(
                figure.add_subplot(rows, 1 if alone else 2, place // 2 + 1 if alone else place + 1),
                by_key,
            )
        paths = [folder / "chart.png", folder / "chart.svg"]
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(path, dpi=150, metadata=metadata)
        plt.close(figure)
    return paths


def _timings(case: Case | None) -> dict[str, Timing]:
    entries = case.entries if case else ()
    return {e.name: e.timing for e in entries if e.timing is not None}


def _times(case: Case | None) -> dict[str, float]:
    return {name: timing.median for name, timing in _timings(case).items()}


def _fastest_lp(times: dict[str, float]) -> dict[str, float]:
    """The fastest way of HiGHS alone."""
    ways = {name: time for name, time in times.items() if name.startswith("HiGHS ")}
    return {name: ways[name] for name in [min(ways, key=lambda n: ways[n])]} if ways else {}


def _bars(ax: Any, by_key: dict[str, Case]) -> None:
    """The peers' times as multiples of gcfcp's, on the same data in the same run."""
    bars: list[tuple[str, float]] = []

    def add(key: str, ours: str, names: dict[str, str]) -> None:
        times = _timings(by_key.get(key))
        for name, label in names.items():
            if name in times and ours in times:
                bars.append((label, Ratio.of(times[name], times[ours]).median))

    largest = max((k for k in by_key if k.startswith("digest-")), default="", key=len)
    digests = [n for n in _times(by_key.get(largest)) if not n.startswith("gcfcp")]
    n = largest.removeprefix("digest-")
    add(largest, "gcfcp upper", {name: f"digest of {int(n or 0):,}: {name}" for name in digests})
    best = _fastest_lp(_times(by_key.get("table-imagenet")))
    lp = {name: f"50 thresholds: ONE LP ({name.split(', ')[0]})" for name in best}
    add("table-imagenet", "gcfcp, all atoms", lp)
    peers = {
        "conditionalconformal": "conditionalconformal",
        "MAPIE conditional": "MAPIE conditional",
        "the paper's bisection, records": "the paper's bisection",
    }
    add("points", "gcfcp, exact", {p: f"a test point: {label}" for p, label in peers.items()})
    labels, ratios = zip(*bars, strict=True)
    colours = [GREY if "np.sort" in label else BLUE for label in labels]
    ax.barh(range(len(bars)), [ratio - 1 for ratio in ratios], left=1, color=colours)
    ax.set_yticks(range(len(bars)), labels)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.set_xlim(min(0.5, *ratios), max(ratios) * 40)
    ax.xaxis.set_major_formatter(lambda x, _: _compact(x))
    ax.minorticks_off()
    ax.axvline(1, color="black", linewidth=1)
    for i, ratio in enumerate(ratios):
        ax.annotate(
            f"{number(ratio)} x", (ratio, i), (4, 0), textcoords="offset points", va="center"
        )
    ax.set_title("Time, as a multiple of gcfcp's (line: gcfcp)", loc="left")


def _curve(ax: Any, xs: list[float], ys: list[float], label: str, style: tuple[str, str]) -> None:
    if xs:
        ax.plot(xs, ys, color=style[0], marker=style[1], label=label)


def _after(text: str, mark: str) -> float:
    """The number behind the mark."""
    return float(text.split(mark)[1].split(" ")[0].replace(",", ""))


def _growth_with_records(ax: Any, by_key: dict[str, Case]) -> None:
    times = _times(by_key.get("records"))
    ours = {name: t for name, t in times.items() if name.startswith("n = ")}
    for own, label, style in (
        (ours, "gcfcp, all 50 thresholds", (BLUE, "o")),
        (_fastest_lp(times), "HiGHS at its best, ONE threshold", (ORANGE, "s")),
    ):
        _curve(ax, [_after(name, "n = ") for name in own], list(own.values()), label, style)
    _log(ax, "records", "seconds", "Solver, 50 atoms, from sorted scores")


def _growth_with_groups(ax: Any, by_key: dict[str, Case]) -> None:
    entries = by_key["groups"].entries if "groups" in by_key else ()
    for start, end, label, style in (
        ("gcfcp", "each of all", "gcfcp, each of all thresholds", (BLUE, "o")),
        ("gcfcp", "one threshold alone", "gcfcp, one threshold alone", (GREEN, "^")),
        ("HiGHS", "one threshold", "HiGHS at its best, one threshold", (ORANGE, "s")),
    ):
        least: dict[float, float] = {}
        for e in entries:
            if e.name.startswith(start) and e.name.endswith(end):
                groups, time = (
                    float(e.name.split(", ")[1].split(" ")[0]),
                    e.figures["ms a threshold"],
                )
                least[groups] = min(time, least.get(groups, time))
        _curve(ax, list(least), list(least.values()), label, style)
    _log(ax, "groups", "milliseconds a threshold", "Solver, up to 1,000 atoms, exact")
    ax.set_ylim(bottom=ax.get_ylim()[0] / 100)  # Room for the legend below the curves.
    ax.legend(frameon=False, loc="lower right")


def _growth_with_clients(ax: Any, by_key: dict[str, Case]) -> None:
    times = _times(by_key.get("clients"))
    xs = [_after(name, "K = ") for name in times]
    for end, mark in (("pooled", "o"), ("in regions", "s")):
        own = {name: t for name, t in times.items() if name.endswith(end)}
        _curve(ax, [_after(name, "K = ") for name in own], list(own.values()), end, (GREEN, mark))
    if len(xs) > 1:
        last = times[list(times)[-1]]
        share = xs[0] / xs[-1]
        ax.plot([xs[0], xs[-1]], [last * share, last], color=GREY, linestyle=":", label="linear")
    sizes = [e.figures["bytes a client"] for e in by_key["clients"].entries]
    _log(ax, "clients", "seconds", f"From bytes to table, {sizes[-1] / 1e3:.2g} kB a client")


def _log(ax: Any, x: str, y: str, title: str) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    measured = sorted({float(v) for line in ax.lines for v in line.get_xdata()})
    ax.set_xticks(measured, [_compact(v) for v in measured])
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    ax.minorticks_off()
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.set_title(title, loc="left")
    ax.legend(frameon=False)


# The cases that each panel shows. A panel without any of its cases is left out.
_PANELS = (
    (("digest-", "table-imagenet", "points"), _bars),
    (("records",), _growth_with_records),
    (("groups",), _growth_with_groups),
    (("clients",), _growth_with_clients),
)
