"""Run the benchmarks: `python -m benchmarks [--quick] [--only CASE ...]`."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import warnings
from pathlib import Path

import gcfcp
from benchmarks import report
from benchmarks.cases import CASES
from benchmarks.machine import machine, one_thread
from benchmarks.measure import Case, Scale
from benchmarks.peers import install_conditionalconformal

_RESULTS = Path(__file__).resolve().parent / "results"
_ROOT = _RESULTS.parent.parent
_OTHER_RESULTS = _ROOT / "build" / "benchmarks"  # For quick runs, and for runs of some cases only.


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, under a minute after installation"
    )
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--turns", type=int, help="runs of each contestant (5; 2 with --quick)")
    parser.add_argument("--output", type=Path, help="folder for results")
    parser.add_argument(
        "--install-peers",
        action="store_true",
        help="make the environment that conditionalconformal needs, if it does not exist",
    )
    return parser.parse_args(given)


def run(names: list[str], scale: Scale) -> list[Case]:
    """Run the cases with these names, and print each as soon as it is done."""
    cases = []
    with warnings.catch_warnings():
        # Rare atoms of the synthetic families have too few records for a finite threshold.
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        for name in names:
            began = time.perf_counter()
            for case in CASES[name](scale):
                print(report.as_text(case, scale.quick), flush=True)
                cases.append(case)
            print(f"  ({name} took {time.perf_counter() - began:.1f} s)\n", flush=True)
    return cases


def main(given: list[str] | None = None) -> int:
    """Run the benchmarks and write the results.

    A whole run writes into benchmarks/results, the README and docs/images. Every other run writes
    into build/benchmarks, unless --output names a folder.
    """
    arguments = _arguments(given)
    if arguments.install_peers:
        install_conditionalconformal()
    scale = Scale(arguments.quick, arguments.turns or (2 if arguments.quick else 5))
    if scale.quick:
        print("Small sizes: under a minute on two quiet cores, after installation.\n", flush=True)
    with one_thread():
        where = machine()
        cases = run(arguments.only, scale)
    whole = not scale.quick and arguments.only == list(CASES)
    folder = arguments.output or (_RESULTS if whole else _OTHER_RESULTS)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(report.as_json(cases, where, scale.quick) + "\n")
    (folder / "results.md").write_text(report.as_markdown(cases, where, scale.quick))
    (folder / "targets.md").write_text(report.as_targets(cases, where, scale.quick))
    chart = report.draw(cases, folder)
    if folder == _RESULTS:
        for path in chart:
            shutil.copy(path, _ROOT / "docs" / "images" / f"performance{path.suffix}")
        readme = _ROOT / "README.md"
        readme.write_text(report.into_readme(readme.read_text(), cases, where))
    missed = [t for case in cases for t in case.targets if not t.met]
    if not scale.quick:
        narrow = sum(t.narrow for case in cases for t in case.targets)
        total = sum(len(case.targets) for case in cases)
        print(f"{total} targets, {len(missed)} missed, {narrow} met narrowly")
    print(f"Written to {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
