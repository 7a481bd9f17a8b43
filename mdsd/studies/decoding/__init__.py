"""Studies of whole decoders: a text with what it took, and verifiers compared on equal terms."""
