"""ONNX in and out: the import as ordered steps, and two writers."""
