"""Which changes of the core does no test notice? `python3 dev.py mutate [--only solver]`.

cosmic-ray makes the mutants. Lines are drawn at random from all targets, and one mutant of each, so
that a line with many operators counts no more than another. A mutant is run in a copy of the tree
with the tests that reach its line, the fastest first, until one fails. The checkout is never
changed. `config.toml` beside this file says what is mutated and lists the equivalent mutants.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import multiprocessing
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import TestOutcome

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CONFIG: dict[str, Any] = tomllib.loads((HERE / "config.toml").read_text())
NOTES = ROOT / "build" / "mutation"  # what a later run can use again

OUTCOMES = ("killed", "timeout", "survived", "equivalent")
PYTEST = "-m pytest -n0 -p no:cacheprovider -p mutation.plugin --tb=no --no-header -x -m 'not slow'"


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str
    line: int
    operator: str
    occurrence: int
    source: str  # the whole file, mutated

    @property
    def changed(self) -> tuple[str, str]:
        """The lines that differ, as they are and as the mutant has them."""
        before = (ROOT / self.file).read_text().splitlines()
        after = self.source.splitlines()
        removed: list[str] = []
        added: list[str] = []
        for tag, i, j, k, m in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
            if tag != "equal":
                removed += [line.strip() for line in before[i:j]]
                added += [line.strip() for line in after[k:m]]
        return "\n".join(removed), "\n".join(added)

    @property
    def within(self) -> str:
        """The name of the innermost function or class around the line."""
        around = [
            node
            for node in ast.walk(ast.parse((ROOT / self.file).read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.lineno <= self.line <= (node.end_lineno or node.lineno)
        ]
        return max(around, key=lambda node: node.lineno).name if around else ""

    @property
    def diff(self) -> str:
        before, after = self.changed
        signed = [f"    - {x}" for x in before.splitlines()]
        signed += [f"    + {x}" for x in after.splitlines()]
        return "\n".join(signed)


@dataclass(frozen=True)
class Reach:
    """Which tests reach which lines, and how long they take."""

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[int]]]  # file -> line -> places in `seconds`

    def tests_of(self, mutant: Mutant) -> dict[str, float]:
        """The tests that can notice a mutant, with their seconds, the fastest first.

        What runs on import can matter to any test of the file. A statement of several lines is
        reached if one of its lines is.
        """
        lines = self.lines.get(mutant.file, {})
        span = _statement(ast.parse((ROOT / mutant.file).read_text()), mutant.line)
        wanted = lines if span is None else (str(number) for number in span)
        names = list(self.seconds)
        found = {names[place] for number in wanted for place in lines.get(number, ())}
        return {t: self.seconds[t] for t in sorted(found, key=lambda t: (self.seconds[t], t))}


def _statement(tree: ast.Module, line: int) -> range | None:
    """The lines of the innermost statement around a line, without the block that it heads.

    None if the line is not in the body of a function.
    """

    def around(first: int, last: int | None) -> bool:
        return first <= line <= (last or first)

    if not any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and around(node.body[0].lineno, node.end_lineno)
        for node in ast.walk(tree)
    ):
        return None
    inner = max(
        (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.stmt | ast.ExceptHandler)
            and around(node.lineno, node.end_lineno)
        ),
        key=lambda node: node.lineno,
    )
    block = getattr(inner, "body", None)
    if not block:
        return range(inner.lineno, (inner.end_lineno or inner.lineno) + 1)
    if line < block[0].lineno:
        return range(inner.lineno, block[0].lineno)
    return range(line, line + 1)


def _files(only: Sequence[str]) -> list[Path]:
    """The files of all targets whose path contains one of the words of `only`."""
    files: list[Path] = []
    for target in CONFIG["targets"]:
        path = ROOT / target
        if not path.exists():
            sys.exit(f"mutation: there is no target {target}; change mutation/config.toml")
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [f for f in files if not only or any(w in _name(f) for w in only)]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _meaning(source: str) -> str | None:
    """What a program does, without its annotations; None if it is no program."""
    try:
        tree = ast.parse(source)
        compile(source, "mutant", "exec")
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if getattr(node, field, None) is not None:
                setattr(node, field, ast.Constant(None))
    return ast.dump(tree)


def _positions(files: Sequence[Path]) -> dict[tuple[str, int], list[tuple[str, int]]]:
    """(file, line) -> every (operator, occurrence) that starts there."""
    left_out = re.compile("|".join(CONFIG["operators_left_out"]))
    names = [n for n in operator_names() if not left_out.fullmatch(n)]
    found: dict[tuple[str, int], list[tuple[str, int]]] = defaultdict(list)
    for file in files:
        nodes = list(ast_nodes(get_ast(file.read_text())))
        for name in names:
            if get_operator(name).arguments():
                continue  # these need names of variables
            operator = get_operator(name)()
            starts = [start for node in nodes for start, _ in operator.mutation_positions(node)]
            for occurrence, (line, _) in enumerate(starts):
                found[_name(file), line].append((name, occurrence))
    return found


def _mutants(files: Sequence[Path], seed: int) -> Iterator[Mutant]:
    """All mutants in random order: one of each line, then another of each, and so on."""
    chance = random.Random(seed)
    positions = _positions(files)
    lines = sorted(positions)
    chance.shuffle(lines)
    for place in lines:
        chance.shuffle(positions[place])
    sources = {_name(file): file.read_text() for file in files}
    meanings = {name: _meaning(source) for name, source in sources.items()}
    while lines:
        for file, line in lines:
            while positions[file, line]:
                name, occurrence = positions[file, line].pop()
                mutated = mutate_code(sources[file], get_operator(name)(), occurrence)
                if mutated and _meaning(mutated) not in (None, meanings[file]):
                    yield Mutant(file, line, name, occurrence, mutated)
                    break
        lines = [place for place in lines if positions[place]]


def _equivalent(mutant: Mutant) -> bool:
    before, after = mutant.changed
    return any(
        (e["file"], e["original"], e["mutated"]) == (mutant.file, before, after)
        and e.get("within", mutant.within) == mutant.within
        for e in CONFIG.get("equivalent", ())
    )


def _copy(tree: Path) -> None:
    """Copy the tree, as it is in the checkout, without compiled files that could be stale."""
    for name in CONFIG["copied"]:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, tree / name)


def _environment(tree: Path) -> dict[str, str]:
    """The tree's own library goes before the installed one; two mutants share two cores."""
    return {
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _pytest(*arguments: str | Path) -> list[str]:
    return [sys.executable, *shlex.split(PYTEST), *map(str, arguments)]


def _test_files(tree: Path) -> list[str]:
    return sorted(
        path.relative_to(tree).as_posix()
        for path in (tree / "tests").rglob("test_*.py")
        if not any(fnmatch(path.name, pattern) for pattern in CONFIG["tests_left_out"])
    )


def _reach(tree: Path) -> Reach:
    """Run all tests once without a mutant, or take what an earlier run of the same tree found."""
    digest = hashlib.sha256(json.dumps(CONFIG["tests_left_out"]).encode())
    for path in sorted(p for p in tree.rglob("*") if p.is_file() and p.suffix != ".pyc"):
        digest.update(path.relative_to(tree).as_posix().encode() + path.read_bytes())
    note = NOTES / f"reach-{digest.hexdigest()[:16]}.json"
    environment = os.environ | _environment(tree)
    if note.exists():  # the tests are still compiled, once for all copies
        command = _pytest("--collect-only", "-qq", *_test_files(tree))
        subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.DEVNULL)
    else:
        print("Running the tests once, to see which lines they reach ...", flush=True)
        NOTES.mkdir(parents=True, exist_ok=True)
        for old in NOTES.glob("reach-*.json"):
            old.unlink()
        out = tree / "reach.json"
        command = _pytest("--reach", out, *_test_files(tree))
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"mutation: the tests must pass before mutants are run\n{done.stdout[-3000:]}")
        shutil.move(out, note)
    for cache in (tree / "src").rglob("__pycache__"):
        shutil.rmtree(cache)
    return Reach(**json.loads(note.read_text()))


def _settle(tree: Path) -> None:
    """Give a worker a copy of its own."""
    own = tree.parent / f"worker-{os.getpid()}"
    shutil.copytree(tree, own)
    os.chdir(own)
    os.environ.update(_environment(own))


def _run(mutant: Mutant, tests: dict[str, float]) -> tuple[str, float]:
    """Put a mutant into this worker's copy, run its tests, and take it out again."""
    start = time.perf_counter()
    file = Path(mutant.file)
    original = file.read_text()
    file.write_text(mutant.source)
    try:
        for batch in _batches(list(tests)):
            limit = round(CONFIG["grace"] + CONFIG["patience"] * sum(tests[t] for t in batch))
            Path("chosen.json").write_text(json.dumps(batch))
            files = dict.fromkeys(test.split("::")[0] for test in batch)
            command = _pytest("--chosen", "chosen.json", "--at-most", str(limit + 5), *files)
            outcome, output = run_tests(shlex.join(command), limit)
            if outcome is TestOutcome.INCOMPETENT:
                raise RuntimeError(output)
            if outcome is TestOutcome.KILLED:
                said = "timeout" if output == "timeout" else "killed"
                return said, time.perf_counter() - start
    finally:
        file.write_text(original)
    return "survived", time.perf_counter() - start


def _batches(tests: list[str]) -> list[list[str]]:
    """The file with the most tests of them, then all others: one file is collected much faster."""
    files = Counter(test.split("::")[0] for test in tests)
    first = max(files, key=lambda file: (files[file], file))
    batches = [
        [t for t in tests if t.split("::")[0] == first],
        [t for t in tests if t.split("::")[0] != first],
    ]
    return [batch for batch in batches if batch]


def _execute(mutants: Sequence[Mutant]) -> dict[Mutant, tuple[str, str]]:
    """mutant -> its outcome, and a remark."""
    results: dict[Mutant, tuple[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="gcfcp-mutation-") as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        _copy(tree)
        reach = _reach(tree)
        with ProcessPoolExecutor(
            CONFIG["workers"],
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_settle,
            initargs=(tree,),
        ) as pool:
            futures = {}
            for mutant in mutants:
                tests = reach.tests_of(mutant)
                if _equivalent(mutant):
                    results[mutant] = "equivalent", "named in config.toml"
                elif not tests:
                    results[mutant] = "survived", "no test reaches the line"
                else:
                    futures[pool.submit(_run, mutant, tests)] = (
                        mutant,
                        f"{len(tests)} tests reach it",
                    )
            try:
                for future in as_completed(futures):
                    mutant, remark = futures[future]
                    outcome, seconds = future.result()
                    results[mutant] = outcome, remark
                    where = f"{mutant.file}:{mutant.line}"
                    print(
                        f"{len(results):4}/{len(mutants)}  {outcome:8} {seconds:6.1f} s  {where}",
                        flush=True,
                    )
            except BaseException:  # an interrupt above all: what waits is not begun
                pool.shutdown(cancel_futures=True)
                raise
    return results


def _report(results: dict[Mutant, tuple[str, str]]) -> None:
    rows = Counter((mutant.file, outcome) for mutant, (outcome, _) in results.items())
    files = sorted({mutant.file for mutant in results})
    width = max(map(len, [*files, "all"]))
    print(f"\n{'':{width}}", *(f"{o:>10}" for o in OUTCOMES))
    for file in files:
        print(f"{file:{width}}", *(f"{rows[file, o]:10}" for o in OUTCOMES))
    print(f"{'all':{width}}", *(f"{sum(rows[f, o] for f in files):10}" for o in OUTCOMES))
    survivors = [m for m, (outcome, _) in results.items() if outcome == "survived"]
    for mutant in sorted(survivors, key=lambda m: (m.file, m.line)):
        print(f"\n{mutant.file}:{mutant.line}  ({results[mutant][1]})\n{mutant.diff}")
    NOTES.mkdir(parents=True, exist_ok=True)
    names = [[m.file, m.operator, m.occurrence] for m in survivors]
    (NOTES / "survivors.json").write_text(json.dumps(names))


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python3 dev.py mutate", description=__doc__)
    parser.add_argument("--number", type=int, default=CONFIG["number"], help="of mutants")
    parser.add_argument("--seed", type=int, default=CONFIG["seed"], help="of the sample")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="targets whose path contains a word"
    )
    parser.add_argument(
        "--again", action="store_true", help="of the sample, only what survived the last run"
    )
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    arguments = _arguments(given)
    for entry in CONFIG.get("equivalent", ()):
        lines = {line.strip() for line in (ROOT / entry["file"]).read_text().splitlines()}
        if not lines.issuperset(entry["original"].splitlines()):
            sys.exit(f"mutation: {entry['file']} has no line {entry['original']!r} any more")
    mutants = list(islice(_mutants(_files(arguments.only), arguments.seed), arguments.number))
    if arguments.again:
        last = json.loads((NOTES / "survivors.json").read_text())
        mutants = [m for m in mutants if [m.file, m.operator, m.occurrence] in last]
    _report(_execute(mutants))
    return 0
