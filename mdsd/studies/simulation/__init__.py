"""Theory beside simulation on random Markov chains: rejections, batches of drafts, bias."""
