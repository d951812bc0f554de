"""Log-likelihoods of exponential families: parameters' factors times records' factors, added up.

Read from the graph. The log-ratio of two points is then linear in what is known of a record before
the first iteration, and whatever does not depend on parameters has left it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum

from pymc_dp.types import Variable

__all__ = ["Separation", "separated"]

MOST_COLUMNS = 16
"""Numbers of a record that its ratio may be linear in: they are kept beside the data."""
_MOST_TERMS = 64


class Separation(NamedTuple):
    """A log-likelihood as ``statistics @ natural[1:] + natural[0]``, less what cancels in ratios.

    ``natural`` is a graph of the parameters, a vector; ``statistics`` one of the records, with a
    row for each.
    """

    natural: Variable
    statistics: Variable


class _MixedError(Exception):
    """Parameters and records meet in an operation that does not separate them."""


class _Term(NamedTuple):
    """A product of a factor without records and one without parameters; None is 1.

    Of a contracted term both have one more axis, over which their product is to be added up.
    """

    parameter: Variable | None
    record: Variable | None
    contracted: bool = False


def separated(theta: Variable, rows: Sequence[Variable], logp: Variable) -> Separation | None:
    """Separate a log-likelihood, one number a record, or tell by None that it does not.

    Parameters
    ----------
    theta, rows : Variable
        The parameters' vector, and arrays of records.
    logp : Variable
        Vector over the records.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.curator.separable import separated
    >>> theta, x = pt.dvector("theta"), pt.dvector("x")
    >>> found = separated(theta, [x], -((x - theta[0]) ** 2) / 2)
    >>> found.natural.eval({theta: [3.0]}), found.statistics.eval({x: [0.5, 2.0]})
    (array([-4.5,  3. ]), array([[0.5],
           [2. ]]))
    >>> separated(theta, [x], -pt.softplus(x * theta[0])) is None
    True
    """
    try:
        return _assembled(_Reader(theta, rows, logp))
    except _MixedError:
        return None


def _assembled(reader: "_Reader") -> Separation:
    constants: list[Variable] = []
    factors: dict[tuple[Variable, bool], list[Variable]] = {}
    for parameter, record, contracted in reader.terms(reader.logp):
        if parameter is None or not reader.has_theta(parameter):
            continue  # the same at every point
        # one number for all records
        if parameter.type.shape[0] != 1:
            raise _MixedError
        if record is None:
            constants.append(parameter[0])
        else:
            factors.setdefault((record, contracted), []).append(parameter[0])
    natural, columns, count = [[_added(constants)]], [], 0
    for (record, contracted), parameters in factors.items():
        total = _added(parameters)
        natural.append(total if contracted else total[None])
        columns.append(_float(record if contracted else record[:, None]))
        count += record.type.shape[1] if contracted else 1
    if not 0 < count <= MOST_COLUMNS:
        raise _MixedError
    return Separation(pt.concatenate(natural), pt.concatenate(columns, axis=1))


def _added(parts: Iterable[Variable]) -> Variable:
    return cast(Variable, sum((_float(part) for part in parts), pt.constant(0.0, dtype="float64")))


def _float(variable: Variable) -> Variable:
    return pt.cast(variable, "float64")


class _Reader:
    """Terms of variables of one graph."""

    def __init__(self, theta: Variable, rows: Sequence[Variable], logp: Variable) -> None:
        self.logp, self._theta, self._rows = logp, theta, set(rows)
        self._known: dict[Variable, list[_Term]] = {}
        self._products: dict[frozenset[Variable] | tuple[Variable, ...], Variable] = {}

    def has_theta(self, variable: Variable) -> bool:
        """Whether a variable depends on the parameters."""
        return self._theta in set(ancestors([variable]))

    def _has_rows(self, variable: Variable) -> bool:
        return not self._rows.isdisjoint(ancestors([variable]))

    def terms(self, variable: Variable) -> list[_Term]:
        """Products that add up to a variable."""
        if variable not in self._known:
            found = self._collected(self._read(variable))
            if len(found) > _MOST_TERMS:
                raise _MixedError
            self._known[variable] = found
        return self._known[variable]

    def _collected(self, terms: Iterable[_Term]) -> list[_Term]:
        """Add up the parameters' factors of one and the same factor of records."""
        alike: dict[tuple[Variable | None, bool], list[Variable | None]] = {}
        for parameter, record, contracted in terms:
            alike.setdefault((record, contracted), []).append(parameter)
        found = []
        for (record, contracted), parameters in alike.items():
            # what is the same at every point is left by itself: it may be infinite
            moving = [p for p in parameters if p is not None and self.has_theta(p)]
            found += [_Term(p, record, contracted) for p in parameters if p not in moving]
            if moving:
                total = moving[0] if len(moving) == 1 else _added(moving)
                found.append(_Term(total, record, contracted))
        return found

    def _read(self, variable: Variable) -> list[_Term]:
        if not self._has_rows(variable):
            return [_Term(variable, None)]
        if not self.has_theta(variable):
            return [_Term(None, variable)]
        node = variable.owner
        if isinstance(node.op, Elemwise):
            rule = _ELEMENTWISE.get(str(node.op.scalar_op).lower())
            if rule is not None:
                return rule(self, *node.inputs)
        elif isinstance(node.op, Sum):
            return self._summed(node)
        elif isinstance(node.op, Alloc):
            same = node.inputs[0].type.broadcastable == variable.type.broadcastable
            if same:  # a value that has its shape already
                return self.terms(node.inputs[0])
        elif isinstance(node.op, DimShuffle):
            return [self._shuffled(node.op, term) for term in self.terms(node.inputs[0])]
        raise _MixedError

    def _shuffled(self, op: DimShuffle, term: _Term) -> _Term:
        if term.contracted:
            raise _MixedError
        parameter, record = (None if part is None else op(part) for part in term[:2])
        return _Term(cast(Any, parameter), cast(Any, record))

    def _summed(self, node: Any) -> list[_Term]:
        """Add up over the numbers of a record."""
        (inside,) = node.inputs
        axes = tuple(range(inside.type.ndim)) if node.op.axis is None else tuple(node.op.axis)
        if not axes:
            return self.terms(inside)
        length = inside.type.shape[-1]
        if axes != (1,) or inside.type.ndim != 2 or length is None:
            raise _MixedError
        return [_sum_over(term, length) for term in self.terms(inside)]

    def product(self, *factors: Variable | None) -> Variable | None:
        """Multiply; the same factors give the same variable."""
        some = [factor for factor in factors if factor is not None]
        if len(some) < 2:
            return some[0] if some else None
        key = frozenset(some) if len(set(some)) > 1 else tuple(some)
        if key not in self._products:
            self._products[key] = _float(some[0]) * _float(some[1])
        return self._products[key]

    def _add(self, *inputs: Variable) -> list[_Term]:
        return [term for each in inputs for term in self.terms(each)]

    def _negate(self, one: Variable) -> list[_Term]:
        minus = pt.constant(np.full((1,) * one.type.ndim, -1.0))
        return [
            t._replace(parameter=self.product(t.parameter, _widened(minus, t.contracted)))
            for t in self.terms(one)
        ]

    def _subtract(self, one: Variable, other: Variable) -> list[_Term]:
        return [*self.terms(one), *self._negate(other)]

    def _multiply(self, *inputs: Variable) -> list[_Term]:
        found = self.terms(inputs[0])
        for each in inputs[1:]:
            found = [self._times(a, b) for a in found for b in self.terms(each)]
        return found

    def _times(self, one: _Term, other: _Term) -> _Term:
        if one.contracted and other.contracted:
            raise _MixedError
        either = one.contracted or other.contracted
        a, b = (
            [_widened(part, either and not term.contracted) for part in term[:2]]
            for term in (one, other)
        )
        return _Term(self.product(a[0], b[0]), self.product(a[1], b[1]), either)

    def _square(self, one: Variable) -> list[_Term]:
        return self._multiply(one, one)

    def _power(self, one: Variable, exponent: Variable) -> list[_Term]:
        value = _number(exponent)
        if value != 2:
            raise _MixedError
        return self._square(one)

    def _divide(self, one: Variable, other: Variable) -> list[_Term]:
        divisor = self.terms(other)
        if len(divisor) != 1 or divisor[0].contracted:
            raise _MixedError
        over, under = (None if part is None else 1.0 / _float(part) for part in divisor[0][:2])
        return [self._times(term, _Term(over, under)) for term in self.terms(one)]

    def _switch(self, condition: Variable, one: Variable, other: Variable) -> list[_Term]:
        """Make a record's own condition, such as a bound of its range, a factor of its own."""
        if self.has_theta(condition):
            raise _MixedError
        found = []
        for branch, holds in ((one, True), (other, False)):
            for term in self.terms(branch):
                mine = _widened(condition, term.contracted)
                record = 1.0 if term.record is None else _float(term.record)
                chosen = pt.switch(mine, record, 0.0) if holds else pt.switch(mine, 0.0, record)
                found.append(term._replace(record=chosen))
        return found

    def _same(self, one: Variable) -> list[_Term]:
        return self.terms(one)


_ELEMENTWISE: dict[str, Callable[..., list[_Term]]] = {
    "add": _Reader._add,
    "sub": _Reader._subtract,
    "neg": _Reader._negate,
    "mul": _Reader._multiply,
    "true_div": _Reader._divide,
    "sqr": _Reader._square,
    "pow": _Reader._power,
    "switch": _Reader._switch,
    "cast{float64}": _Reader._same,
    "identity": _Reader._same,
}


def _widened(part: Variable | None, wider: bool) -> Variable | None:
    """Give a factor the axis over which a contracted term is added up."""
    return part[:, None] if wider and part is not None else part


def _number(variable: Variable) -> float:
    """Value of a constant, however it was broadcast."""
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    if isinstance(variable, Constant) and np.size(variable.data) == 1:
        return float(np.ravel(variable.data)[0])
    return math.nan


def _sum_over(term: _Term, length: int) -> _Term:
    """Sum of a term over its second axis, of which factors may have a single entry."""
    parameter, record, contracted = term
    if contracted:
        raise _MixedError
    widths = [1 if part is None else part.type.shape[1] for part in (parameter, record)]
    if None in widths:
        raise _MixedError
    if widths == [length, length] and length > 1:
        return _Term(parameter, record, contracted=True)
    if parameter is not None:
        parameter = _float(parameter).sum(axis=1)
    if record is not None:
        record = _float(record).sum(axis=1)
    if widths == [1, 1] and length > 1:  # as many equal entries
        many = pt.constant(np.array([float(length)]))
        parameter = many if parameter is None else parameter * many
    return _Term(parameter, record)
