r"""What a record adds to a released score: its gradient at a place, held within a bound.

One definition for both sides: the curator sums it over confidential records, the analyst over the
latent records of a model. With s the gradient of a record's log-likelihood at the place, in
coordinates q of ``theta = place + basis @ q``, and C the bound:

``"length"``
    :math:`s \min(1, C / |s|)`. Nothing is asked of the model. Where it is a regression, the mean of
    this depends on the law of the covariates, and so does what an analyst concludes.
``"covariates"``
    Let a response y with covariates x have parameters :math:`\phi(\theta, x)`, so that
    :math:`s = A(x)^T u(y, x)` with :math:`A = \partial\phi / \partial\theta` and
    :math:`u = \partial \log p(y | \phi) / \partial\phi`. The response is held in a range
    [a(x), b(x)] of its law at the place (:mod:`~pymc_dp.analyst.score.nodes`), u is centred,
    :math:`v(y, x) = u(\tilde y, x) - E[u(\tilde Y, x) | x]`, and scaled by a factor of the
    covariates alone: :math:`w(x) A(x)^T v(y, x)`, :math:`w(x) = \min(1, C / m(x))`,
    :math:`m(x) = \max_y |A(x)^T v(y, x)|`. At its own place this has mean zero whatever the
    covariates' law is. A response with two values, as in logistic regression, needs no range: v is
    u, since a score has mean zero.

Sensitivity
-----------
Both are at most C long: the first since :math:`|s| \min(1, C / |s|) \le C`, the second since
:math:`w(x) |A^T v| \le C / m(x) \cdot m(x)`. So replacing a record moves the sum by at most 2 C,
adding or removing one by C. The curator does not rely on this arithmetic, nor on the quadrature
behind m: each record's part goes through
:func:`~pymc_dp.curator.gradient_kernels.clipped_gradient_total` or one of its kin, which hold any
vector within the bound in whole numbers, exactly, count what is no number as zero, and look at no
other record. What is asked of the graph is that row i is a function of record i alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import pushforward
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import random_generator_type

from pymc_dp.analyst.score.nodes import has_nodes, response_nodes
from pymc_dp.graph.rewrites import without_checks, written_out
from pymc_dp.types import Variable

__all__ = ["Bound", "Response", "held_by_covariates", "held_by_length", "response_of", "scores"]

Bound = Literal["length", "covariates"]
WIDTH = 2.0
"""Half of the range of a held response, in standard deviations: 98 % of a normal mean's information
is left of it, and a longer range costs noise in proportion."""


class Response(NamedTuple):
    """A response whose law is a distribution with parameters made of `theta` and covariates.

    Attributes
    ----------
    op : RandomVariable
        The distribution.
    value : Variable
        Its values, one a record.
    parameters : list
        Of the distribution.
    """

    op: Any
    value: Variable
    parameters: list[Variable]


def response_of(rv: Variable) -> Response | None:
    """Take a random variable apart; None where its scores cannot be held by their covariates."""
    op = rv.owner.op
    plain = isinstance(op, RandomVariable) and op.ndim_supp == 0 and rv.type.ndim == 1
    if not plain or not has_nodes(op.name) or any(op.ndims_params):
        return None
    parameters = [pt.atleast_1d(each) for each in op.dist_params(rv.owner)]
    return Response(op, rv, parameters)


def scores(logp: Variable, theta: Variable, directions: Variable) -> Variable:
    """Gradient of each entry of `logp` along directions, one a row of the result."""
    direction = pt.dvector("direction")
    pushed = written_out(_pushed(logp, theta, direction))
    if direction not in set(ancestors([pushed])):
        raise ValueError("it is zero everywhere")
    return vectorize_graph(pushed, {direction: directions})


def _pushed(output: Variable, theta: Variable, direction: Variable) -> Variable:
    """Differentiate along a direction, by operations' own rules where all have one.

    Otherwise by two reverse passes, which leave sums over the records in the graph.
    """
    options: Any = {"disconnected_outputs": "ignore"}
    try:
        return pushforward(output, theta, direction, use_op_pushforward=True, **options)
    except NotImplementedError:
        return pushforward(output, theta, direction, **options)


def held_by_length(score: Variable, clip: Any) -> Variable:
    """Shorten the columns of a matrix that are longer than `clip`; no number becomes zero."""
    length = pt.sqrt(pt.sqr(score).sum(axis=0))
    factor = pt.minimum(1.0, clip / pt.maximum(length, 1e-300))
    return pt.switch(length[None, :] < 1e19 * clip, score * factor[None, :], 0.0)


def held_by_covariates(
    response: Response, theta: Variable, directions: Variable, clip: Any
) -> Variable:
    """Scores by a factor of the covariates alone, centred given these; one record a column."""
    number = response.value.shape[0]
    spread = [
        pt.broadcast_to(each, (number,)) if each.type.broadcastable == (True,) else each
        for each in response.parameters
    ]
    entries = _entries(response, theta)
    slopes = [scores(entry, theta, directions) for entry in entries]
    products = {
        (j, k): (slopes[j] * slopes[k]).sum(axis=0)
        for j in range(len(slopes))
        for k in range(j + 1)
    }
    if response.op.name == "bernoulli":
        centred, possible = _of_two(response, entries)
        longest = pt.maximum(*(_length(products, each) for each in possible))
        held = _shortened(centred, longest, clip)
        usable = longest < pt.inf
    else:
        centred, at_nodes = _of_range(response, spread, entries)
        held = _shortened(centred, _length(products, at_nodes).max(axis=0), clip)
        # nodes are some of the values that it can have
        length = _length(products, held)
        held, usable = _shortened(held, length, clip), length < 1e19 * clip
    total: Any = sum(slope * v[None, :] for slope, v in zip(slopes, held, strict=True))
    return pt.switch(usable[None, :], total, 0.0)


def _shortened(amounts: Sequence[Variable], length: Variable, clip: Any) -> list[Variable]:
    factor = pt.minimum(1.0, clip / pt.maximum(length, 1e-300))
    return [without_checks(amount * factor) for amount in amounts]


def _length(products: Mapping[tuple[int, int], Variable], amounts: Sequence[Variable]) -> Variable:
    """Length of a sum of amounts of some vectors, by the products of these."""
    if len(amounts) == 1:
        return pt.sqrt(products[0, 0]) * pt.abs(amounts[0])
    square: Any = 0.0
    for (j, k), product in products.items():
        square = square + (1.0 if j == k else 2.0) * product * amounts[j] * amounts[k]
    return pt.sqrt(pt.maximum(square, 0.0))


def _of_two(
    response: Response, entries: Sequence[Variable]
) -> tuple[list[Variable], list[list[Variable]]]:
    """Scores of a response with two values, which have mean zero, and those of each value."""
    values = [pt.constant([[value]], dtype=response.value.dtype) for value in (0, 1)]
    zero, one = ([u[0] for u in _local_scores(response, value, entries)] for value in values)
    own = [pt.switch(response.value > 0, *pair) for pair in zip(one, zero, strict=True)]
    return own, [zero, one]


def _of_range(
    response: Response, spread: Sequence[Variable], entries: Sequence[Variable]
) -> tuple[list[Variable], list[Variable]]:
    """Centred scores of a response that is held in a range, and those at nodes of the range."""
    nodes = response_nodes(response.op, list(spread), WIDTH)
    held = pt.clip(response.value, nodes.lower, nodes.upper)
    values = pt.concatenate([held[None, :], nodes.values], axis=0)
    likely = nodes.probabilities > 0
    centred, at_nodes = [], []
    for u in _local_scores(response, values, entries):
        mean = pt.switch(likely, nodes.probabilities * u[1:], 0.0).sum(axis=0)
        centred.append(u[0] - mean)
        at_nodes.append(pt.switch(likely, u[1:] - mean[None, :], 0.0))
    return centred, at_nodes


def _entries(response: Response, theta: Variable) -> list[Variable]:
    """Where `theta` enters the response's law.

    Below a function of one predictor alone, such as an inverse link, it is the predictor: a
    gradient by it stays finite where the function saturates.
    """
    by_theta = {theta}
    for node in FunctionGraph(outputs=response.parameters, clone=False).toposort():
        if not by_theta.isdisjoint(node.inputs):
            by_theta.update(node.outputs)
    entries = []
    for entry in response.parameters:
        if entry not in by_theta:
            continue
        while (below := _only_input(entry, by_theta)) is not None:
            entry = below
        if entry not in entries:
            entries.append(entry)
    return entries


def _only_input(variable: Variable, by_theta: set[Variable]) -> Variable | None:
    node = variable.owner
    if node is None or not isinstance(node.op, Elemwise):
        return None
    entering = [each for each in node.inputs if each in by_theta]
    others = [each for each in node.inputs if each not in by_theta]
    same_shape = entering[0].type.broadcastable == variable.type.broadcastable
    if len(entering) != 1 or not same_shape or not all(set(o.type.shape) <= {1} for o in others):
        return None
    return entering[0]


def _local_scores(
    response: Response, values: Variable, entries: Sequence[Variable]
) -> list[Variable]:
    """Differentiate the log-density of some values, one record a column, by the entries."""
    number = response.value.shape[0]
    slots, value = [pt.dvector() for _ in entries], response.value.type()
    swap = dict(zip(entries, slots, strict=True))
    parameters = clone_replace(response.parameters, swap, rebuild_strict=False)
    law = response.op.make_node(random_generator_type(), None, *parameters).outputs[1]
    logp = without_checks(pm.logp(law, value, warn_rvs=False))
    gradients: Any = pt.grad(None, slots, known_grads={logp: pt.ones_like(logp)})
    spread = [pt.broadcast_to(entry.astype("float64"), (number,)) for entry in entries]
    local = clone_replace(gradients, dict(zip(slots, spread, strict=True)), rebuild_strict=False)
    return vectorize_graph(local, {value: values})
