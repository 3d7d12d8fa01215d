"""Adds the provider `canned` and the evaluator `word_count` to agentv."""
