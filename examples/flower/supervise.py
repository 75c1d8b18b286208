"""Run a command, and run it again whenever it ends: `python supervise.py COMMAND...`.

A SuperNode that was killed cannot connect again at once: the SuperLink takes it for alive until
60 s after its last sign of life, and lets no second one in. Until then the SuperNode ends with exit
code 305. So it has to be started again and again, with a pause. systemd does the same with
Restart=always and RestartSec=5. Ctrl-C or SIGTERM ends both.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

PAUSE = 5.0  # The seconds between two starts.


def main(command: list[str]) -> int:
    """Run the command until this process is told to end."""

    def end(*_: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        process = subprocess.Popen(command)
        try:
            code = process.wait()
            print(f"supervise: {command[0]} ended with {code}, starts again", flush=True)
            time.sleep(PAUSE)
        except (KeyboardInterrupt, SystemExit):
            process.terminate()
            process.wait()
            return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python supervise.py COMMAND...")
    sys.exit(main(sys.argv[1:]))
