"""Encode values as JSON. Values of other types, such as paths, are encoded as text."""

import msgspec

to_json = msgspec.json.Encoder(enc_hook=str).encode
to_sorted_json = msgspec.json.Encoder(enc_hook=str, order="sorted").encode
"""Sort the keys of objects, so that equal values have equal digests."""
