"""What serving engines do with the drafts of one position, lossless or not: one file a rule.

Each says who has it and how often it accepts, and gives the exact law of what it emits, so that its
bias is known. Those that can be biased are never chosen by a name: a decoder is given an object,
`mdsd.decoding.BiasedVerification`. A new one is made known in `built_in`.
"""
