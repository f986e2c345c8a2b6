"""The network: links that are shaped, what moves tensors over them, and what they cost."""
