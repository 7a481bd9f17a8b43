"""The rules of verification, each stated once, over the namespace of the arrays it is given.

A rule takes a target p and a draft law q, of shape (V,) or (B, V), of numpy or of any library of
the array API standard, and says with which chance its tests pass and what is left of p when all of
them fail. Plans ask for the chances of every token of one row, to look up whatever is drafted;
batches on a device ask for those of the tokens that each row drafted. What is in compiled code for
speed is checked against these statements.
"""
