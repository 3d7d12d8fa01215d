"""One browser for all the tests of a process."""

from collections.abc import Iterator

import pytest

from tests.kits.browser import Browser, start_browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with start_browser(tmp_path_factory.mktemp("browser")) as started:
        yield started
