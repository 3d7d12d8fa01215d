"""`agentv`, and `python -m agentv`. Signals are handled from the first line on."""

from agentv.processes import interrupts

interrupts.install()

import atexit  # noqa: E402
import gc  # noqa: E402

atexit.register(interrupts.block)  # the first to be registered is the last to be called


def main() -> None:
    """Run the command line."""
    gc.disable()  # nothing that importing makes is garbage: looking for some takes a tenth of starting
    from agentv.cli import run

    gc.freeze()
    gc.enable()
    run()


if __name__ == "__main__":
    main()
