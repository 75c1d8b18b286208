"""The command line: parse, call the library, print.

Exit codes: 0 done; 1 the input is wrong, said in one line on standard error; 2 usage. With `--json`
a result is printed for machines. "-" is standard input or output. No file is overwritten without
`--force`, and every file is written whole or not at all.

| module     | what it is for                                                   |
|------------|------------------------------------------------------------------|
| `entry`    | the entry, and what becomes of an error                          |
| `options`  | the application, and the options that several commands share     |
| `site`     | the commands that run at a site                                  |
| `server`   | the commands that run where summaries meet                       |
| `demo`     | a whole federated calibration on built-in data                   |
| `inputs`   | what commands read: files, mixtures, seeds                       |
| `printing` | what commands print: tables for people, JSON for machines        |
| `console`  | the terminal: tables, notes, progress                            |
"""

from __future__ import annotations

import sys


def main() -> None:
    """The console command. Without its libraries it says in one line what to install."""
    try:
        import typer  # noqa: F401
    except ImportError:
        print(
            "gcfcp: the commands need the package typer, which is not installed: install gcfcp "
            "with its extra cli, for example pip install '.[cli]' in a clone",
            file=sys.stderr,
        )
        sys.exit(1)
    from gcfcp.cli.entry import main as run

    run()
