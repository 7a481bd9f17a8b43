"""The relaxed problem (9) as a maximum b-matching, solved as a maximum flow on integers.

Hu et al., "Towards Optimal Multi-draft Speculative Decoding". The network is source -> sets ->
tokens -> sink. Masses become integers, so that the flow and its minimum cut are exact; scipy's
``maximum_flow`` is not used because it truncates capacities to 32 bits without a word.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ._typing import BoolArray, FloatArray, IntArray
from .errors import SolverFailure
from .transport import TransportInstance, TransportSolution, verify_solution

_TOLERANCE = 1e-9
_ORTOOLS_LIMIT = 2**62


@dataclass(frozen=True, eq=False)
class _Network:
    """Arcs source -> sets, then pairs set -> token, then tokens -> sink; source 0, sink last."""

    tails: IntArray
    heads: IntArray
    capacities: list[int]
    sink: int


def solve_matching(
    instance: TransportInstance, *, scale: int = 2**60, backend: str | None = None
) -> TransportSolution:
    """Solve the relaxed problem (9) of Hu et al. as a maximum flow.

    Parameters
    ----------
    instance : TransportInstance
        V tokens, S sets, P pairs: the network has V + S + 2 nodes and up to V + S + P arcs.
    scale : int, optional
        Capacities are ``floor(mass * scale)``, computed exactly.
    backend : {None, "ortools", "networkx"}, optional
        ``"ortools"`` is fast and limited to a total of 2**62; ``"networkx"`` is exact at any
        scale. None takes OR-tools when it is installed, else networkx.

    Returns
    -------
    TransportSolution
        Plan from the flow, H from the minimum cut: of several minimum cuts of the integer network
        the one with the largest H.

    Raises
    ------
    ValueError
        If the backend is unknown, the scale is not a positive integer, too large for the backend,
        or too coarse for this instance.
    SolverFailure
        If the backend reports no optimum or its answer fails the re-check.
    ImportError
        If the backend asked for is not installed.

    Examples
    --------
    >>> from solvers.matching import solve_matching
    >>> from solvers.transport import merge_tuples
    >>> instance = merge_tuples([0.25, 0.75], [[0, 0], [0, 1], [1, 1]], [0.5, 0.25, 0.25])
    >>> solution = solve_matching(instance, backend="networkx")
    >>> round(solution.value, 9), solution.subset.tolist()
    (0.75, [True, False])
    """
    backend = _chosen_backend(backend)
    if isinstance(scale, bool) or not isinstance(scale, int) or scale < 1:
        raise ValueError(f"scale must be a positive integer, got {scale!r}")
    set_capacities = _integer_masses(instance.set_masses, scale)
    token_capacities = _integer_masses(instance.token_masses, scale)
    kept, network = _network(instance, set_capacities, token_capacities)
    flows = _BACKENDS[backend](network)
    pair_flows = np.zeros(instance.num_pairs, dtype=object)
    pair_flows[kept] = flows[instance.num_sets : len(flows) - instance.num_tokens]
    token_flows = flows[len(flows) - instance.num_tokens :]
    spare = np.array([f < c for f, c in zip(token_flows, token_capacities, strict=True)])
    plan = np.array([flow / scale for flow in pair_flows])
    subset = ~_reaches_sink(instance, pair_flows > 0, spare)
    return _verified(instance, plan, subset, scale, method=f"matching ({backend})")


def _verified(
    instance: TransportInstance, plan: FloatArray, subset: BoolArray, scale: int, *, method: str
) -> TransportSolution:
    """Re-check the answer, and blame the scale where rounding alone can explain a failure."""
    try:
        return verify_solution(instance, plan, subset, method=method, tolerance=_TOLERANCE)
    except SolverFailure as failure:
        lost = (instance.num_sets + instance.num_tokens) / scale
        if lost <= _TOLERANCE:
            raise
        raise ValueError(
            f"scale {scale} is too coarse for {instance.num_sets} sets and {instance.num_tokens} "
            f"tokens (rounding loses up to {lost:.1e}, {_TOLERANCE:.0e} is allowed): use 2**60"
        ) from failure


def _chosen_backend(backend: str | None) -> str:
    if backend is None:
        return "ortools" if importlib.util.find_spec("ortools") else "networkx"
    if backend not in _BACKENDS:
        raise ValueError(f"backend must be None or one of {sorted(_BACKENDS)}, got {backend!r}")
    return backend


def _integer_masses(masses: FloatArray, scale: int) -> list[int]:
    """Return ``floor(mass * scale)`` of each mass, exact for every float and scale."""
    ratios = (mass.as_integer_ratio() for mass in masses.tolist())
    return [numerator * scale // denominator for numerator, denominator in ratios]


def _network(
    instance: TransportInstance, set_capacities: list[int], token_capacities: list[int]
) -> tuple[IntArray, _Network]:
    """Return the pairs that can carry flow, and the network made of them."""
    pair_sets = instance.pair_sets()
    # The smaller end bounds a pair, so no stand-in for infinity is needed.
    pair_capacities = [
        min(set_capacities[s], token_capacities[i])
        for s, i in zip(pair_sets.tolist(), instance.set_tokens.tolist(), strict=True)
    ]
    kept = np.flatnonzero(np.array(pair_capacities, dtype=object) > 0)
    sets = 1 + np.arange(instance.num_sets)
    tokens = 1 + instance.num_sets + np.arange(instance.num_tokens)
    sink = 1 + instance.num_sets + instance.num_tokens
    network = _Network(
        tails=np.concatenate([np.zeros_like(sets), sets[pair_sets[kept]], tokens]),
        heads=np.concatenate([sets, tokens[instance.set_tokens[kept]], np.full_like(tokens, sink)]),
        capacities=set_capacities + [pair_capacities[k] for k in kept] + token_capacities,
        sink=sink,
    )
    return kept, network


def _reaches_sink(
    instance: TransportInstance, carries_flow: BoolArray, spare: BoolArray
) -> BoolArray:
    """Return which tokens reach the sink in the residual network, shape (V,).

    The other tokens are the largest H of a minimum cut. A set reaches the sink with any of its
    tokens; a token with spare capacity does, and so does one fed by a set that does, since that
    flow could take the set's other way.
    """
    pair_sets = instance.pair_sets()
    tokens = spare.copy()
    count = -1
    while count != (count := int(tokens.sum())):
        sets = np.zeros(instance.num_sets, dtype=np.bool_)
        sets[pair_sets[tokens[instance.set_tokens]]] = True
        tokens[instance.set_tokens[carries_flow & sets[pair_sets]]] = True
    return tokens


def _ortools_flow(network: _Network) -> list[int]:
    """Return the flow of each arc with OR-tools (push-relabel, 64 bits)."""
    totals = np.array(network.capacities, dtype=object)
    source_total = totals[network.tails == 0].sum()
    if max(source_total, totals[network.heads == network.sink].sum()) > _ORTOOLS_LIMIT:
        raise ValueError(
            "scale is too large for OR-tools: the scaled masses add up to more than 2**62; "
            "use a smaller scale or backend='networkx'"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # compiled modules can warn about their own types
        from ortools.graph.python import max_flow

    solver = max_flow.SimpleMaxFlow()
    capacities = np.array(network.capacities, dtype=np.int64)
    arcs = solver.add_arcs_with_capacity(network.tails, network.heads, capacities)
    status = solver.solve(0, network.sink)
    if status != solver.OPTIMAL:
        raise SolverFailure("matching (ortools)", f"status {getattr(status, 'name', status)}")
    flows: list[int] = solver.flows(arcs).tolist()
    return flows


def _networkx_flow(network: _Network) -> list[int]:
    """Return the flow of each arc with networkx on Python integers."""
    import networkx as nx
    from networkx.algorithms.flow import shortest_augmenting_path

    graph = nx.DiGraph()
    tails, heads = network.tails.tolist(), network.heads.tolist()
    graph.add_nodes_from([0, network.sink])
    graph.add_edges_from(
        (tail, head, {"capacity": capacity})
        for tail, head, capacity in zip(tails, heads, network.capacities, strict=True)
    )
    # Of networkx's algorithms the fastest here, 0.05 s at V = 60, n = 2, next to Boykov-Kolmogorov.
    residual = shortest_augmenting_path(graph, 0, network.sink)
    absent = {"flow": 0}  # networkx leaves out arcs without capacity
    return [
        residual[tail].get(head, absent)["flow"] for tail, head in zip(tails, heads, strict=True)
    ]


_BACKENDS: dict[str, Callable[[_Network], list[int]]] = {
    "networkx": _networkx_flow,
    "ortools": _ortools_flow,
}
