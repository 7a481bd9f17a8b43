"""Which tree to draft: acceptance by rank, given or measured, and the best tree for it."""
