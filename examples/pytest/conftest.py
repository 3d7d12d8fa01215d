"""Lets the tests import the agent in this folder."""
