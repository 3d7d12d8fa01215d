"""A review in a browser, and the labels that it writes."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from agentv.trust.review import ReviewDefaults
from agentv.view.review import ReviewStore
from agentv.view.serve import serving
from tests.kits.browser import Browser, Page
from tests.kits.pages import a_result, save_results
from tests.kits.viewer import Address

Results = list[dict[str, Any]]
IDLE = "document.documentElement?.dataset.ready === 'yes' && document.querySelector('main').ariaBusy === 'false'"


def answered(count: int, **fields: Any) -> Results:
    """So many results whose answers all differ."""
    return [a_result(f"c{number}", 0.5, **fields) for number in range(count)]


def labels_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Reviewing:
    """A page for labels, the keys that are pressed in it, and the file that they go to."""

    def __init__(self, page: Page, at: Address, labels: Path):
        self.page, self.at, self.labels = page, at, labels

    @property
    def words(self) -> list[str]:
        """The label of each answer, in the order of the file."""
        return [label["label"] for label in labels_in(self.labels)]

    @property
    def progress(self) -> str:
        return self.page.text(".review-progress")

    @property
    def title(self) -> str:
        return self.page.text("#review-title")

    @property
    def answer(self) -> str:
        return self.page.text(".review-texts .answer .text")

    def press(self, *keys: str) -> None:
        """Press keys, waiting for the effect of each."""
        for key in keys:
            self.page.press(key)
            self.wait()

    def wait(self) -> None:
        self.page.wait(IDLE)

    def click(self, selector: str) -> None:
        self.page.click(selector)
        self.wait()

    def set(self, **values: str) -> None:
        """Change settings and restart the review."""
        self.page.js("document.querySelector('.review-settings').open = true")
        for name, value in values.items():
            self.page.js(f"document.querySelector('.review-settings [name={name}]').value = {json.dumps(value)}")
        self.click(".review-settings [type=submit]")


Review = Callable[..., Reviewing]


@contextmanager
def reviews(browser: Browser, folder: Path) -> Iterator[Review]:
    """Starts viewers of results, and opens their pages; a page opened later is another browser's."""
    with ExitStack() as stack:

        def open_review(results: Results, *, width: int = 1400, **defaults: Any) -> Reviewing:
            file = save_results(folder / "results.jsonl", results)
            given: dict[str, Any] = {"labels": folder / "labels.jsonl", "reviewer": "ann"} | defaults
            desk = ReviewStore(ReviewDefaults(**given))
            at = Address(stack.enter_context(serving([file], 0, desk, opens_review=True)))
            page = stack.enter_context(browser.page(width, 800))
            page.go_to(at.whole)
            found = Reviewing(page, at, given["labels"])
            found.wait()
            return found

        yield open_review
