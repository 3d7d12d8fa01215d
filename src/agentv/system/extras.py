"""How to install what an extra of agentv needs.

agentv is in no package index, so `pip install 'agentv[openai]'` finds nothing. The packages of an extra are, and
their names and versions stand in agentv's own metadata, whether it came from a checkout or from a wheel.
"""


def install_command(extra: str, *, upgrade: bool = False) -> str:
    """Return the command that installs the packages of an extra, from any folder."""
    return " ".join(["pip install", *(["--upgrade"] if upgrade else []), *(f"'{name}'" for name in _packages(extra))])


def _packages(extra: str) -> list[str]:
    """Return the requirements of an extra; in sources that were never installed, the extra of this checkout."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        needed = [line.partition(";") for line in requires("agentv") or ()]
    except PackageNotFoundError:
        needed = []
    conditions = (f"extra == '{extra}'", f'extra == "{extra}"')
    return [name.strip() for name, _, condition in needed if condition.strip() in conditions] or [f".[{extra}]"]
