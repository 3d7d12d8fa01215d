"""Adds to agentv a kind of target, `canned`, and a type of evaluator, `word_count`."""
