"""Packages that must not be loaded early."""

HEAVY = ["httpx2", "asyncio", "msgspec", "yaml", "dotenv", "logging", "openai", "anthropic", "google.genai"]
