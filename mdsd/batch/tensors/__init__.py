"""Batch calls on arrays of other libraries, on whatever device they live.

Everything here is written against the array API standard, so that one text serves torch on any
accelerator and every other library of that standard. It is called for arrays that numpy cannot
read where they are; those in the host's memory go through compiled code.
"""
