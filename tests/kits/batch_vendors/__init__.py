"""How each vendor speaks of batches: what it is asked, by method and path, and what it says."""

from tests.kits.batch_vendors import anthropic, gemini, openai

ROUTES = (*openai.ROUTES, *anthropic.ROUTES, *gemini.ROUTES)
