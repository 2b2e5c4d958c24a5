"""The papers' networks as ordinary ONNX models with seeded weights; no deep-learning framework is needed."""

from dovetail.zoo.catalogue import Count, build, count, entry, names
from dovetail.zoo.table import TABLE, Published, ZooEntry, listing, listing_json

__all__ = ["TABLE", "Count", "Published", "build", "count", "entry", "listing", "listing_json", "names", "ZooEntry"]
