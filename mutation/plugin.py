"""The pytest plugin of `mutation`: runs of tests that are quick, repeatable and bounded.

`--reach FILE` writes which test takes how long and which lines of the library it reaches.
`--chosen FILE` runs the tests that the file lists, in that order.
`--at-most SECONDS` ends the run, even if whoever started it is gone by then.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import coverage
import pytest
from hypothesis import Phase, settings

_MEMORY = 6 * 2**30  # bytes; a mutant can ask for any size


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mutation")
    group.addoption("--reach", type=Path)
    group.addoption("--chosen", type=Path)
    group.addoption("--at-most", type=int)


def pytest_configure(config: pytest.Config) -> None:
    # Shrinking makes a failure readable, and nobody reads this one.
    phases = [Phase.explicit, Phase.generate]
    settings.register_profile(
        "mutation", derandomize=True, deadline=None, database=None, phases=phases
    )
    settings.load_profile("mutation")
    if config.option.at_most and hasattr(signal, "alarm"):
        import resource

        signal.alarm(config.option.at_most)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    if config.option.reach:
        config.pluginmanager.register(_Reach(config.option.reach))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.chosen:
        place = {name: i for i, name in enumerate(json.loads(config.option.chosen.read_text()))}
        items[:] = sorted(
            (item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid]
        )


class _Reach:
    """Measures the coverage of each test by itself."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._seconds: dict[str, float] = {}
        self._coverage = coverage.Coverage(
            data_file=None, config_file=False, source=[str(Path("src").resolve())]
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        root = Path.cwd()
        place = {test: i for i, test in enumerate(self._seconds)}
        lines = {
            Path(file).relative_to(root).as_posix(): {
                line: [place[test] for test in tests if test]
                for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        self._out.write_text(json.dumps({"seconds": self._seconds, "lines": lines}))
