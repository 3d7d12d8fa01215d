"""`agentv`, and `python -m agentv`: leaves quietly when interrupted, from the first line on."""

import signal
import sys

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_seen: list[int] = []


def main() -> None:
    """Run the command line; an interruption is an exit code of 130, and no traceback."""
    try:
        listen()
        from agentv.cli import run

        run()
    except BaseException:
        if _seen:  # whatever it became on its way here
            sys.exit(130)
        raise


def listen() -> None:
    """Let the signals that end a program raise `KeyboardInterrupt`."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, _frame: object) -> None:
    _seen.append(number)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
