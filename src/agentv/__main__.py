"""`python -m agentv`."""

from agentv.cli import main

main()
