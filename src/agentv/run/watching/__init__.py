"""Who looks on while cases run: the progress, files with prompts and traces, a collector of spans."""
