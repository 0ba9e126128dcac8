"""Reductions and normalisations with the pointwise nodes around them, as one pass over rows."""

from collections.abc import Callable, Iterable, Sequence
from math import prod

from core.export.operators import POINTWISE
from core.export.rows import ROW_OPERATORS, RowSpace, row_space
from core.fusion.assemble import Draft
from core.fusion.plan import Kind
from core.fusion.values import counted, leaves_graph
from core.graph.ir import Graph, Node

# Rows of more elements than a block holds in registers want many blocks: fewer rows than this leave most SMs idle, and
# pointwise work is better spread over all of them.
_LONG_ROW, _FEW_ROWS = 32768, 64


def row_draft(nodes: Sequence[Node]) -> Draft:
    """The region of nodes that `row_space` takes."""
    reduces = [n.op for n in nodes if n.op in ROW_OPERATORS]
    beside = len(nodes) - len(reduces)
    what = " and ".join(dict.fromkeys(reduces))
    reason = f"{what} with {counted(beside, 'pointwise neighbour')} in one pass over rows"
    return Draft(Kind.REDUCTION, tuple(n.name for n in nodes), reason)


def row_groups(
    graph: Graph, free: Callable[[Node], bool], drafts: Iterable[Draft], allowed: Callable[[Sequence[str]], bool]
) -> list[list[Node]]:
    """Groups of two nodes and more, each in graph order, around the reductions that are free, first come first served.

    A group grows over free producers and consumers. It may have several results: what others read too is written as
    it would be without the fusion. `drafts` are the regions that exist; no group waits for one that waits for it.
    """
    position = {n.name: i for i, n in enumerate(graph)}
    owner = {name: draft.nodes for draft in drafts for name in draft.nodes}
    found: list[list[Node]] = []
    taken: set[str] = set()
    for seed in graph:
        if seed.op not in ROW_OPERATORS or seed.name in taken or not free(seed):
            continue
        space = row_space(graph, [seed])
        if isinstance(space, str) or _lonely(space):
            continue
        group = _grown(graph, seed, lambda n: n.name not in taken and free(n), owner, allowed, position)
        if len(group) > 1:
            found.append(group)
            names = tuple(n.name for n in group)
            taken.update(names)
            owner.update(dict.fromkeys(names, names))
    return found


def _lonely(space: RowSpace) -> bool:
    columns = prod(space.shape[a] for a in space.axes)
    return columns > _LONG_ROW and prod(space.shape) // columns < _FEW_ROWS


def _grown(
    graph: Graph, seed: Node, free: Callable[[Node], bool], owner: dict[str, tuple[str, ...]],
    allowed: Callable[[Sequence[str]], bool], position: dict[str, int],
) -> list[Node]:  # fmt: skip
    group = {seed.name: seed}
    grows = True
    while grows:
        grows = False
        for node in _neighbours(graph, group.values()):
            if node.name in group or node.op not in POINTWISE | ROW_OPERATORS or not free(node):
                continue
            wider = sorted((*group.values(), node), key=lambda n: position[n.name])
            names = [n.name for n in wider]
            if not allowed(names) or isinstance(row_space(graph, wider), str) or waits_for_itself(graph, names, owner):
                continue
            group[node.name] = node
            grows = True
    return sorted(group.values(), key=lambda n: position[n.name])


def _neighbours(graph: Graph, nodes: Iterable[Node]) -> list[Node]:
    found: dict[str, Node] = {}
    for node in nodes:
        makers = (graph.producer(t) for t in node.inputs)
        readers = (r for t in node.outputs if t for r in graph.consumers(t))
        found.update((n.name, n) for n in (*makers, *readers) if n is not None)
    return list(found.values())


def waits_for_itself(graph: Graph, names: Sequence[str], owner: dict[str, tuple[str, ...]]) -> bool:
    """Whether a result of the group leads back into it through other regions. Impossible with one way out."""
    inside = set(names)
    exits = [n for n in names if _leaves(graph, graph.node(n), inside)]
    if len(exits) < 2:
        return False
    waiting = [r.name for n in exits for t in graph.node(n).outputs if t for r in graph.consumers(t)]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name in inside:
            continue
        region = owner.get(name, (name,))
        seen.update(region)
        for member in region:
            for tensor in graph.node(member).outputs:
                readers = [r.name for r in graph.consumers(tensor)] if tensor else []
                if not inside.isdisjoint(readers):
                    return True
                waiting += readers
    return False


def _leaves(graph: Graph, node: Node, inside: set[str]) -> bool:
    return any(
        leaves_graph(graph, t) or any(r.name not in inside for r in graph.consumers(t)) for t in node.outputs if t
    )
