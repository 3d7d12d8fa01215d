"""The filter language, with which commands and pages select cases and results."""
