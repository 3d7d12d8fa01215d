"""The batch API of each vendor: requests by method and path, and responses."""

from tests.kits.batch_vendors import anthropic, gemini, openai

ROUTES = (*openai.ROUTES, *anthropic.ROUTES, *gemini.ROUTES)
