"""The Open Inference Protocol over HTTP and gRPC, and metrics as text."""
