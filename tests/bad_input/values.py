"""Bad values by kind, for arguments that are read alike."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import mdsd

from .rows import Values

NAN, INF = float("nan"), float("inf")
P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]


class NotConvertible:
    """Refuses to become an array with an error of its own, as a torch tensor with a gradient."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("Can't call numpy() on\nTensor that requires grad.")


NOT_NUMBERS: Values = {
    "none": (None,),
    "string": ("abc", "str"),
    "strings": (["0.2", "0.5", "0.3"], "str"),
    "bytes": (b"abc", "bytes"),
    "objects": (np.array([0.5, 0.5, None]), "object"),
    "ragged": ([[0.2], [0.5, 0.3]],),
    "complex": (np.array([0.2j, 0.5, 0.3]), "complex128"),
    "bool": ([True, False, False], "bool"),
    "dict": ({0: 1.0}, "object"),
    "date": (np.array(["2024-01-01"] * 3, dtype="datetime64[D]"), "datetime64"),
    "not_convertible": (NotConvertible(),),
}

PROBS: Values = {
    **NOT_NUMBERS,
    "nan": ([0.5, NAN, 0.5], "nan", "index 1"),
    "negative": ([0.6, 0.5, -0.1], "-0.1", "index 2"),
    "barely_negative": ([-1e-300, 0.5, 0.5], "-1e-300", "index 0"),
    "inf": ([INF, 0.5, 0.5], "inf", "index 0"),
    "minus_inf": ([0.5, 0.5, -INF], "-inf", "index 2"),
    "beyond_float64": (np.array(["1e4000", "0", "0"], dtype=np.longdouble), "inf"),
    "huge": ([1e308, 1e308, 0.0], "inf"),
    "all_zero": ([0.0, 0.0, 0.0], "sums to 0"),
    "mass_float64": ([0.2, 0.5, 0.30002], "1.00002", "float64"),
    "mass_float32": (np.array([0.2, 0.5, 0.3002], dtype=np.float32), "1.0001", "float32"),
    "mass_float16": (np.array([0.2, 0.5, 0.33], dtype=np.float16), "1.03", "float16"),
    "mass_bfloat16": (np.array([0.2, 0.5, 0.35], dtype=ml_dtypes.bfloat16), "1.0", "bfloat16"),
    "mass_longdouble": (np.array([0.2, 0.5, 0.30002], dtype=np.longdouble), "1.00002"),
    "mass_int": ([1, 3, 0], "sums to 4"),
    "empty": ([], "empty"),
    "scalar": (1.0, "()"),
    "matrix": ([[0.2, 0.5, 0.3]], "(1, 3)"),
    "read_only": (np.broadcast_to(np.float64(0.5), 3), "1.5"),
}

TARGETS: Values = {
    **PROBS,
    "shorter": ([0.5, 0.5], "2 tokens", "3"),
    "longer": ([0.25, 0.25, 0.25, 0.25], "4 tokens", "3"),
}

TOKENS: Values = {
    "none": (None, "object"),
    "negative": ([-1, 0], "-1", "position 0"),
    "too_large": ([0, 3], "3", "position 1", "0..2"),
    "beyond_int32": ([2**40, 0], str(2**40)),
    "beyond_int64": (np.array([2**63 + 1, 0], dtype=np.uint64), str(2**63 + 1)),
    "beyond_uint64": ([2**64, 0], "integers"),
    "float": ([0.0, 1.0], "float64", "integers"),
    "bool": ([True, False], "bool", "integers"),
    "nan": ([NAN, 0], "float64"),
    "string": ("ab", "str"),
    "strings": (["0", "1"], "str"),
    "objects": (np.array([0, None]), "object"),
    "complex": ([0j, 1j], "complex128"),
    "ragged": ([[0], [1, 2]],),
    "scalar": (0, "()"),
    "too_short": ([0], "(1,)"),
    "too_long": ([0, 1, 2], "(3,)"),
    "empty": ([], "(0,)"),
    "not_convertible": (NotConvertible(),),
}
IDS: Values = {**TOKENS, "matrix": ([[0, 1]], "(1, 2)")}
TEXTS: Values = {kind: IDS[kind] for kind in IDS if kind not in ("too_short", "too_long")}
TOKEN_ROWS: Values = {
    "none": (None, "object"),
    "negative": ([[0, 1], [-1, 0]], "row 1", "-1"),
    "too_large": ([[0, 1], [1, 0], [0, 3]], "row 2", "3"),
    "float": ([[0.0, 1.0]], "float64"),
    "bool": ([[True, False]], "bool"),
    "string": ("ab", "str"),
    "objects": (np.array([[0, None]]), "object"),
    "complex": ([[0j, 1j]], "complex128"),
    "ragged": ([[0], [1, 2]],),
    "vector": ([0, 1], "(2,)"),
    "too_short": ([[0]], "(1, 1)"),
    "too_long": ([[0, 1, 2]], "(1, 3)"),
    "empty": ([], "(0,)"),
    "not_convertible": (NotConvertible(),),
}


MODELS: Values = {
    "none": (None, "NoneType"),
    "table": (np.eye(3), "ndarray"),
    "class": (mdsd.decoding.TableModel, "type"),
    "function": (len, "builtin_function_or_method"),
}


def written(*values: Any) -> Values:
    """Values that a message repeats as they are written."""
    return {repr(value).strip("'"): (value, repr(value)) for value in values}


MATRIX: Values = {"matrix": (np.zeros((3, 3)),), "list": ([2], "[2]"), "nan": (NAN, "nan")}
BEYOND = "beyond_int64"
COUNTS: Values = {
    **MATRIX,
    **written(0, -1, 1.5, 2.0, True, "2", 2j),
    "none": (None, "None"),
    "array": (np.array([2]),),
    "numpy_float": (np.float64(2.0), "2.0"),
    "inf": (INF, "inf"),
    "beyond_int64": (10**30, str(10**30)),
}
SEEDS: Values = {
    **MATRIX,
    **written(-1, 1.5, True, "0"),
    "global_state": (np.random.RandomState(0),),
    "module": (np.random,),
}
WHOLE_SEEDS: Values = {**SEEDS, "none": (None, "None")}
SIZES: Values = {
    **MATRIX,
    **written(-1, 1.5, 2.0, True, "3"),
    "tuple": ((2, 3), "(2, 3)"),
    "beyond_int64": (10**30, str(10**30)),
}
TEMPERATURES: Values = {
    **written(-1.0, "1", True, 1j),
    "nan": (NAN, "nan"),
    "inf": (INF, "inf"),
    "none": (None, "None"),
    "strings": (np.array([["a", "b"], ["c", "d"]]),),
    "objects": ([1.0, None], "None"),
    "ragged": ([[1.0], [1.0, 2.0]],),
    "wrong_length": ([1.0, 1.0, 1.0], "(3,)"),
    "empty": ([], "(0,)"),
    "beyond_float64": (10**400,),
}
TOP_KS: Values = {**MATRIX, **written(-2, 1.5, 2.0, True, "2"), "inf": (INF, "inf")}
TOP_PS: Values = {
    **MATRIX,
    **written(0, 0.0, -0.5, 1.5, "0.9", True, 1j),
    "none": (None, "None"),
    "beyond_float64": (10**400,),
}
MIN_PS: Values = {
    **MATRIX,
    **written(-0.5, 1.5, "0.1", True, 1j),
    "nan": (NAN, "nan"),
    "none": (None, "None"),
    "beyond_float64": (10**400,),
}
TOLERANCES: Values = {
    **MATRIX,
    **written(-1e-9, "1e-9", True, 1j),
    "inf": (INF, "inf"),
    "none": (None, "None"),
    "beyond_float64": (10**400,),
}
ITERATIONS: Values = {**MATRIX, **written(0, -1, 1.5, 2.0, True, "10"), "inf": (INF, "inf")}
UNIFORMS: Values = {
    "negative": ([0.5, -0.1, 0.5], "-0.1"),
    "one": ([0.5, 0.5, 1.0], "1.0"),
    "nan": ([NAN, 0.5, 0.5], "nan"),
    "inf": ([0.5, INF, 0.5], "inf"),
    "missing_entry": ([0.5, None, 0.5],),
    "string": ("abc",),
    "strings": (["0.5", "0.5", "0.5"],),
    "complex": (np.array([0.5j, 0.5, 0.5]),),
    "bool": ([False, False, False],),
    "ragged": ([[0.5], [0.5, 0.5]],),
    "beyond_float64": ([10**400, 0.5, 0.5],),
    "scalar": (0.5, "()"),
    "too_short": ([0.5, 0.5], "(2,)"),
    "too_long": ([0.5] * 4, "(4,)"),
    "matrix": ([[0.5, 0.5, 0.5]], "(1, 3)"),
    "empty": ([], "(0,)"),
    "not_convertible": (NotConvertible(),),
}
UNIFORM_ROWS: Values = {
    "negative": ([[0.5] * 3, [0.5, -0.1, 0.5]], "row 1", "-0.1"),
    "one": ([[0.5] * 3, [0.5, 0.5, 1.0]], "row 1", "1.0"),
    "nan": ([[0.5] * 3, [NAN, 0.5, 0.5]], "row 1", "nan"),
    "too_few_rows": ([[0.5] * 3], "(1, 3)"),
    "vector": ([0.5] * 3, "(3,)"),
    "complex": (np.full((2, 3), 0.5j),),
    "ragged": ([[0.5], [0.5, 0.5]],),
}
SEED_ROWS: Values = {
    "negative": ([0, -1], "row 1", "-1"),
    "float": ([0.0, 1.0], "float64"),
    "bool": ([True, False], "bool"),
    "strings": (["0", "1"], "str"),
    "objects": (np.array([0, None]), "object"),
    "complex": ([0j, 1j], "complex128"),
    "beyond_uint64": ([0, 2**64], "2**64"),
    "too_few_rows": ([0], "(1,)"),
    "scalar": (0, "()"),
    "matrix": ([[0], [1]], "(2, 1)"),
    "ragged": ([[0], [0, 1]],),
    "not_convertible": (NotConvertible(),),
}
ORDERS: Values = {
    "none": (None,),
    "repeated": ([0, 1, 1], "2"),
    "negative": ([0, 1, -1], "2"),
    "too_large": ([0, 1, 3], "2"),
    "too_short": ([0, 1], "(2,)"),
    "too_long": ([0, 1, 2, 0], "(4,)"),
    "scalar": (0, "()"),
    "matrix": ([[0, 1, 2]], "(1, 3)"),
    "float": ([0.0, 1.0, 2.0], "float64"),
    "bool": ([True, False, True], "bool"),
    "string": ("abc", "str"),
    "objects": (np.array([0, 1, None]), "object"),
    "ragged": ([[0], [1, 2]],),
    "empty": ([], "(0,)"),
    "beyond_int64": ([2**64, 0, 1],),
    "not_convertible": (NotConvertible(),),
}
NOT_DRAFTS: Values = {
    "none": (None, "NoneType"),
    "name": ("with_replacement", "str"),
    "probs": (Q, "list"),
    "array": (np.array(Q), "ndarray"),
    "class": (mdsd.WithReplacement,),
    "verifier": (mdsd.NaiveVerifier(), "NaiveVerifier"),
}


def names(*unknown: str, **near: str) -> Values:
    """Names that are not known, near ones with the suggestion to expect, and what is no name."""
    return {
        **written(*unknown),
        **{typo: (typo, repr(typo), meant) for typo, meant in near.items()},
        "empty": ("", "''"),
        "number": (3, "3"),
        "list": (["lp"], "lp"),
        "array": (np.array(["lp", "subset"]),),
        "lines": ("a\nb", r"a\nb"),
    }
