"""Parts of the claim that integers are right: against ONNX Runtime, in builds, of trained and of other people's networks."""
