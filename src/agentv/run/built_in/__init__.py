"""The features that are part of the run: each is an extension, like those of other packages."""
