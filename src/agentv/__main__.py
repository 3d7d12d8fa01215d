"""The entry point of `agentv` and `python -m agentv`. Signals are handled from the start."""

import sys

from agentv import WINDOWS_MESSAGE

if sys.platform == "win32":
    # Before anything is imported that Windows does not have, such as `fcntl` and `signal.SIGHUP`.
    print(f"error: {WINDOWS_MESSAGE}", file=sys.stderr)
    sys.exit(2)

from agentv.processes import interrupts

interrupts.install()

import atexit  # noqa: E402
import gc  # noqa: E402

atexit.register(interrupts.disable)  # the first to be registered is the last to be called


def main() -> None:
    """Run the command line."""
    gc.disable()  # imports create no garbage, and collecting it would take a tenth of the start-up time
    from agentv.cli import run

    gc.freeze()
    gc.enable()
    run()


if __name__ == "__main__":
    main()
