"""Adds to agentv a kind of target, `replay`, and a type of evaluator, `word_count`."""
