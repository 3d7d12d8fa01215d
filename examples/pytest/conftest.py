"""Is here so that tests can import the agent beside it."""
