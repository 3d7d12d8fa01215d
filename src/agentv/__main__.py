"""`agentv`, and `python -m agentv`: leaves quietly when interrupted, from the first line on."""

import gc
import os
import signal
import sys

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_seen: list[int] = []


def main() -> None:
    """Run the command line; an interruption is an exit code of 130, and no traceback."""
    try:
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup wants it
                signal.signal(number, _interrupt)
        gc.disable()  # nothing that importing makes is garbage: looking for some takes a tenth of starting
        from agentv.cli import run

        gc.freeze()
        gc.enable()
        run()
    except BaseException:
        if _seen:  # whatever it became on its way here
            _leave()
        raise


def _interrupt(number: int, _frame: object) -> None:
    _seen.append(number)
    raise KeyboardInterrupt


def _leave() -> None:
    """Exit with 130. Python itself would rather kill itself when `exec` has seen the interruption."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            continue  # nobody may be listening
    os._exit(130)


if __name__ == "__main__":
    main()
