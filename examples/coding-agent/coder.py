"""An offline substitute for a coding agent that can do two tasks."""

import sys
from pathlib import Path

task = sys.argv[1]
file = Path("prices.py")
code = file.read_text()
if "discount" in task:
    file.write_text(code.replace("price - percent", "price - price * percent // 100"))
    print("A discount is now a share of the price.")
else:
    file.write_text(
        code
        + '\n\ndef cheapest(prices: list[int]) -> int:\n    """Return the lowest price."""\n    return max(prices)\n'
    )
    print("There is a function cheapest now.")
