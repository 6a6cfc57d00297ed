"""The command `peri`, also as `python -m perihelion`."""

import signal
import sys

from perihelion._perihelion import run_command


def main() -> int:
    """Runs the command that `sys.argv` names and returns its exit code."""
    # Python would raise KeyboardInterrupt once the command has handled the signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_command(["peri", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
