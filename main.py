"""Entry point: no arguments or a model opens the window; a verb runs on the command line.

Only the standard library is imported here and on the way to `--help`, so it answers at once and works before set-up.
"""

import sys


def main(argv: list[str]) -> int:
    from core.cli import run

    return run(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
