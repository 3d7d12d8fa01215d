"""`agentv`, and `python -m agentv`: leaves quietly when interrupted, from the first line on."""

import signal
import sys


def main() -> None:
    """Run the command line; an interruption is an exit code of 130, and no traceback."""
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        from agentv.cli import run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
