"""SmartNoise SQL: mechanisms by epsilon and delta, and counts and sums of queries."""

import json
import warnings


def main():
    import pandas as pd
    from snsql import Privacy, from_df
    from snsql.sql._mechanisms.gaussian import Gaussian
    from snsql.sql._mechanisms.laplace import Laplace

    warnings.simplefilter("ignore")
    found = []
    for kind, name, more in (
        (Gaussian, "gaussian", {"delta": 1e-5}),
        (Gaussian, "gaussian", {"delta": 1e-3, "max_contrib": 2}),
        (Laplace, "laplace", {}),
        (Laplace, "laplace", {"max_contrib": 3}),
    ):
        given = {"epsilon": 0.7, "sensitivity": 2.5} | more
        mechanism = kind(**given)
        values = [float(v) for v in mechanism.release([40.0] * 3000)]
        found.append(
            {"name": name, "given": given, "column": "float", "truth": 40.0, "values": values}
            | {"scale": mechanism.scale}
        )
    column = {"v": {"type": "int", "lower": 0, "upper": 5}}
    meta = {"": {"": {"t": {"row_privacy": True, "censor_dims": False, **column}}}}
    frame = pd.DataFrame({"v": [3] * 20})
    reader = from_df(frame, privacy=Privacy(epsilon=0.7, delta=1e-5), metadata=meta)
    counts = [int(reader.execute("SELECT COUNT(*) AS n FROM t")[1][0]) for _ in range(1500)]
    found.append(
        {"name": "laplace", "given": {"epsilon": 0.7, "sensitivity": 1}, "column": "int"}
        | {"truth": 20, "values": counts, "scale": 1 / 0.7}
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
