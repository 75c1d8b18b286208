"""The command line. Its commands read arguments and files, call the library, and print.

The exit code is 0 if all went well, 1 if the input is wrong (one line on standard error says what),
2 if a command was used wrongly, and 3 if `--skip-bad` left files out of a result. With `--json` a
result is printed for programs. "-" stands for standard input or output. No file is overwritten
without `--force`, and every file is written completely or not at all.

| module     | what it is for                                                     |
|------------|--------------------------------------------------------------------|
| `entry`    | starts a command, and turns an error into one line                 |
| `options`  | the application, and the options that several commands share       |
| `site`     | the commands that run at a site                                    |
| `ledger`   | the command that lists what a site has told over a network         |
| `server`   | the commands that run where the summaries of all sites come together |
| `explore`  | the command that shows what alpha and the mixture cost             |
| `demo`     | a whole federated calibration on built-in data                     |
| `inputs`   | what commands read: files, mixtures, seeds                         |
| `printing` | what commands print: tables for people, JSON for programs          |
| `console`  | the terminal: tables, notes                                        |
| `waiting`  | the terminal: how far a command is, after two seconds              |
"""

from __future__ import annotations

import sys

from gcfcp.errors import GCFCPError
from gcfcp.libraries import needs


def main() -> None:
    """The command `gcfcp`. If its libraries are missing, one line says what to install."""
    try:
        needs("typer", "the commands", "cli")
    except GCFCPError as error:
        print(f"gcfcp: {error}", file=sys.stderr)
        sys.exit(1)
    from gcfcp.cli.entry import main as run

    run()
