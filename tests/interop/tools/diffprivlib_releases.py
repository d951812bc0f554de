"""diffprivlib's mechanisms: their attributes, and what they released thousands of times."""

import json


def main():
    from diffprivlib import mechanisms as m

    bounds = {"lower": 0, "upper": 10}
    noise = {"epsilon": 0.4, "sensitivity": 1}
    with_delta = {"epsilon": 0.8, "delta": 0.05, "sensitivity": 1}
    made = [
        m.Laplace(**noise),
        m.Laplace(**with_delta),
        m.LaplaceTruncated(**noise, **bounds),
        m.LaplaceFolded(**noise, **bounds),
        m.LaplaceFolded(**with_delta, lower=3.3, upper=4.1),
        m.LaplaceBoundedDomain(**noise, **bounds),
        m.LaplaceBoundedDomain(**with_delta, **bounds),
        m.Geometric(**noise),
        m.GeometricTruncated(**noise, **bounds),
        m.GeometricFolded(**noise, **bounds),
        m.GeometricFolded(**noise, lower=0.5, upper=3.5),
        m.Staircase(**noise),
        m.Staircase(**noise, gamma=0.8),
        m.Gaussian(epsilon=0.9, delta=1e-3, sensitivity=1),
        m.GaussianAnalytic(epsilon=0.9, delta=1e-3, sensitivity=1),
        m.GaussianDiscrete(epsilon=0.9, delta=1e-3, sensitivity=1),
    ]
    found = []
    for mechanism in made:
        name = type(mechanism).__name__
        for truth in (2, 9):
            values = [float(mechanism.randomise(truth)) for _ in range(3000)]
            kept = {k: v for k, v in vars(mechanism).items() if isinstance(v, int | float)}
            found.append({"name": name, "vars": kept, "truth": truth, "values": values})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
