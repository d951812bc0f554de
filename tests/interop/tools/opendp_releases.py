"""OpenDP's Polars queries: summaries, and what thousands of groups released."""

import json


def main():
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    groups, size = 3000, 12
    data = pl.LazyFrame(
        {
            "group": [k for k in range(groups) for _ in range(size)],
            "one": [1] * groups * size,
            "half": [0.5] * groups * size,
        }
    )

    def queries(by):
        whole, half = pl.col("one").dp.sum((0, 2)), pl.col("half").fill_nan(0.0).dp.sum((0.0, 1.0))
        yield by.agg(dp.len(signed=True).alias("signed"), whole, half)
        yield by.agg(dp.len(signed=False).alias("unsigned"))

    public = {"by": ["group"], "max_length": size, "max_groups": groups}
    known = dp.polars.Margin(invariant="keys", **public)
    hidden = dp.polars.Margin(**public)
    found = []
    for margin, losses in (
        (known, [{"epsilon": 0.3}, {"rho": 0.01}]),
        (hidden, [{"epsilon": 2.0, "delta": 1e-3}, {"rho": 0.2, "delta": 1e-3}]),
    ):
        for loss in losses:
            for i in range(2):
                context = dp.Context.compositor(
                    data=data,
                    privacy_unit=dp.unit_of(contributions=1),
                    privacy_loss=dp.loss_of(**loss),
                    split_evenly_over=1,
                    margins=[margin],
                )
                query = list(queries(context.query().group_by("group")))[i]
                frame = query.release().collect()
                found.append(
                    {
                        "loss": loss,
                        "summary": query.summarize().to_dict(as_series=False),
                        "released": frame.to_dict(as_series=False),
                        "types": {name: str(kind) for name, kind in frame.schema.items()},
                        "truth": {"signed": size, "unsigned": size, "one": size, "half": size / 2},
                        "groups": groups,
                    }
                )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
