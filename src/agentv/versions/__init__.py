"""Versions of the user's code: Python files, functions and commands."""
