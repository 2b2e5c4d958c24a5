"""TensorFlow Lite in: a file's tables (`file`), and its operators as ONNX nodes (`translate`), which the import reads on."""
