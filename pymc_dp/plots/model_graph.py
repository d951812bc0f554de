"""A model as a graph, with records, statistic and mechanism told apart."""

from __future__ import annotations

from typing import Any

import pymc as pm
from pymc.model_graph import NodeType
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.records import record_variables
from pymc_dp.analyst.release import Release, releases
from pymc_dp.explanation import Explanation, explain

__all__ = ["model_graph"]

RECORDS = {"shape": "box", "style": "rounded, filled, dashed", "fillcolor": "#dbe9f4"}
STATISTIC = {"shape": "box", "style": "filled", "fillcolor": "#f4f4f4"}
RELEASED = {"shape": "hexagon", "style": "filled", "fillcolor": "#f9dcc4"}
#: characters of a label's line
WIDTH = 40


def model_graph(model: pm.Model | None = None, **kwargs: Any) -> Any:
    """Draw a model as PyMC does, with what is confidential, what was computed and what was added.

    Confidential records are dashed boxes, statistics are grey boxes between them and the releases,
    and a release is a hexagon with its mechanism.

    Parameters
    ----------
    model : Model, optional
        Defaults to the model in context.
    **kwargs
        Passed to ``pm.model_to_graphviz``.

    Returns
    -------
    graphviz.Digraph
        Notebooks show it; ``.render(...)`` writes it to a file.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> from pymc_dp.plots import model_graph
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x", pm.Normal("mu", 0, 10), 1, shape=100)
    ...     total = pmdp.clamp(x, -5, 5).sum()
    ...     s = pmdp.Privatized("s", total, pmdp.Laplace(scale=10), observed=103.0)
    >>> "sum over x of clip(x, -5, 5)" in model_graph(model).source
    True
    """
    model = pm.modelcontext(model)
    declared = {release.rv: release for release in releases(model)}
    records = set(record_variables(model))

    def free(rv: TensorVariable) -> dict[str, Any]:
        if rv in declared:
            return _released(declared[rv])
        return {"label": _label(rv), **(RECORDS if rv in records else {"shape": "ellipse"})}

    def observed(rv: TensorVariable) -> dict[str, Any]:
        if rv in declared:
            return _released(declared[rv])
        return {"label": _label(rv), "shape": "ellipse", "style": "filled"}

    formatters = {NodeType.FREE_RV: free, NodeType.OBSERVED_RV: observed}
    graph = pm.model_to_graphviz(model, node_formatters=formatters, **kwargs)
    told = explain(model)
    for release in declared.values():
        _insert_statistic(graph, release.name, _statistic(release, told))
    return graph


def _label(rv: TensorVariable) -> str:
    law = rv.owner.op
    return f"{rv.name}\n~\n{getattr(law, '_print_name', [type(law).__name__])[0]}"


def _released(release: Release) -> dict[str, Any]:
    return {"label": f"{release.name}\n{_folded(repr(release.mechanism))}", **RELEASED}


def _statistic(release: Release, told: Explanation) -> str:
    """Say what was computed before the noise."""
    for one in told.releases:
        if one.name == release.name:
            over = ", ".join(one.records)
            if one.adds is None:
                return f"every record of {over}"
            return _folded(f"sum over {over} of {one.adds}")
    text = told.latent.get(release.name, "")
    return _folded(text.rpartition(" on ")[2] or "statistic")


def _folded(text: str) -> str:
    """Break a long text into lines."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) >= WIDTH:
            lines.append("")
        lines[-1] += word if not lines[-1] else f" {word}"
    return "\n".join(lines[:4] + ["..."] * (len(lines) > 4))


def _insert_statistic(graph: Any, name: str, text: str) -> None:
    """Let every edge into a release pass through a node of its statistic."""
    node = f"{name} statistic"
    parents = []
    for line in list(graph.body):
        parent, arrow, child = line.strip().partition(" -> ")
        if arrow and child.strip('"') == name:
            parents.append(parent.strip('"'))
            graph.body.remove(line)
    graph.node(node, label=text, **STATISTIC)
    for parent in parents:
        graph.edge(parent, node)
    graph.edge(node, name)
