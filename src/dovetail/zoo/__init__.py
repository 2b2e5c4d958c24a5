"""The papers' networks as ordinary ONNX models with seeded weights; no deep-learning framework is needed."""

from dovetail.zoo.table import TABLE, Count, Published, ZooEntry, build, count, entry, listing, listing_json, names

__all__ = ["TABLE", "Count", "Published", "build", "count", "entry", "listing", "listing_json", "names", "ZooEntry"]
