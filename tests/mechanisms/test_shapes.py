"""A statistic is never made larger by its noise, nor a guarantee smaller by its shape."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.type import random_generator_type

import pymc_dp as pmdp

FAMILIES = [pmdp.Laplace, pmdp.Gaussian, pmdp.DiscreteLaplace, pmdp.DiscreteGaussian]
CHANGES = {
    "plain": lambda noise: noise,
    "clamped": lambda noise: noise.clamped(0),
    "rounded": lambda noise: noise.rounded(2),
    "thresholded": lambda noise: noise.thresholded(1, dropped=0),
}
MISFITS = [((50,), ()), ((3,), (2, 3)), ((1,), (3,)), ((1, 3), (2, 3)), ((3,), (1,)), ((1,), ())]


def statistic_of(shape):
    return np.full(shape, 5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(("noise", "shape"), MISFITS)
def test_noise_of_another_shape_is_refused_everywhere(family, change, noise, shape):
    mechanism = change(family(np.full(noise, 2.0)))
    message = rf"noise of shape \({noise[0]}.* has shape \(.*in its shape"
    with pytest.raises(ValueError, match=message):
        mechanism.release(statistic_of(shape))
    symbolic = pt.as_tensor(statistic_of(shape).astype(float))
    with pytest.raises(ValueError, match=message):
        mechanism.logp(symbolic, symbolic)
    with pytest.raises(ValueError, match=message):
        mechanism.draw(symbolic, random_generator_type())
    with pytest.raises(ValueError, match=message):
        mechanism.check_statistic("r", symbolic, shape)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_one_number_or_the_same_shape_is_taken(family, shape, recwarn):
    for noise in (2.0, np.full(shape, 2.0)):
        assert np.shape(family(noise).release(statistic_of(shape))) == shape


@pytest.mark.parametrize("family", FAMILIES)
def test_sensitivities_match_the_noise(family):
    with pytest.raises(ValueError, match=r"sensitivity has shape \(3,\).*\(2, 3\)"):
        family(np.ones((2, 3))).guarantee(np.ones(3))
    with pytest.raises(ValueError, match=r"sensitivity has shape \(1,\).*\(50,\)"):
        family(np.ones(50)).guarantee([1.0])
    assert family(np.ones(50)).guarantee(np.ones(50)).rho >= 25


def test_guarantees_and_sensitivities_match_each_other():
    with pytest.raises(ValueError, match=r"epsilon has shape \(2,\)"):
        pmdp.Laplace(epsilon=[1, 2], sensitivity=[1, 2, 3])
    with pytest.raises(ValueError, match=r"rho has shape \(3,\)"):
        pmdp.Gaussian(rho=[1, 2, 3], sensitivity=np.ones((2, 3)))
    with pytest.raises(ValueError, match="sensitivity must be one number"):
        pmdp.ExponentialMechanism(lambda x, c: -abs(x - c), 1, [1, 2], candidates=[0, 1])


def test_in_a_model():
    with pm.Model():
        x = pm.Normal("x", 0, 1, shape=10)
        with pytest.raises(ValueError, match=r"the statistic of 'r' has shape \(\)"):
            pmdp.Privatized("r", x.sum(), pmdp.Laplace(scale=np.ones(50)))


def test_utilities_are_summed_over_records():
    def unsummed(x, candidate):
        return pt.eq(x, candidate)

    choice = pmdp.ExponentialMechanism(unsummed, 1, 1, candidates=[0, 1])
    with pytest.raises(ValueError, match="sum over the records"):
        choice.logp(0, pt.as_tensor([0.0, 1.0]))
    gradient = pmdp.KNormGradient(unsummed, 1, 1, candidates=[0, 1])
    with pytest.raises(ValueError, match="sum over the records"):
        gradient.logp(0, pt.as_tensor([0.0, 1.0]))
