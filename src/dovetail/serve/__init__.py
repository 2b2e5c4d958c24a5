"""An inference server: builds as models of the Open Inference Protocol v2, over HTTP.

Data goes `app` (HTTP) → `protocol` (bytes to arrays) → `models` (queue, batches) → `workers` (supervised processes) → `runner`
(a build with its parts open), and back.
"""
