"""A target that answers in a batch, for the tests of batches."""

import pytest

from tests.kits.project import Write
from tests.kits.runs import Batch


@pytest.fixture
def batch(write: Write) -> Batch:
    return Batch(write)
