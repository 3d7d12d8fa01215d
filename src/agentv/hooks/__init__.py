"""Run the user's code before and after a run and each attempt, and pass on what it returns as state."""
