"""The public Python functions: evaluate cases, estimate and compare runs. `agentv` imports each on first use."""
