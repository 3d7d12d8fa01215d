"""The command that installs the packages of an extra.

agentv is not in a package index, so `pip install 'agentv[openai]'` fails. The packages of its extras are, and their
names and versions are in agentv's own metadata, whether it was installed from a checkout or from a wheel.
"""


def install_command(extra: str, *, upgrade: bool = False) -> str:
    """Return the command that installs the packages of an extra, from any folder."""
    words = ["pip install"]
    if upgrade:
        words.append("--upgrade")
    for name in _packages(extra):
        words.append(f"'{name}'")
    return " ".join(words)


def _packages(extra: str) -> list[str]:
    """Return the requirements of an extra. If agentv is not installed, return the extra of the current checkout."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        requirements = requires("agentv") or []
    except PackageNotFoundError:
        requirements = []
    conditions = (f"extra == '{extra}'", f'extra == "{extra}"')
    packages = []
    for line in requirements:
        name, _, condition = line.partition(";")
        if condition.strip() in conditions:
            packages.append(name.strip())
    if not packages:
        return [f".[{extra}]"]
    return packages
