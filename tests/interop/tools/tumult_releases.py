"""Tumult Analytics: noise information of queries, and what thousands of groups released."""

import json
import os
import sys
import tempfile


def main():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.chdir(tempfile.mkdtemp())  # Spark writes where it stands
    import pandas as pd
    from pyspark.sql import SparkSession
    from tmlt.analytics import (
        AddOneRow,
        KeySet,
        PureDPBudget,
        QueryBuilder,
        RhoZCDPBudget,
        Session,
    )

    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    groups, size = 2000, 6
    rows = {"g": [f"{k}" for k in range(groups) for _ in range(size)]}
    rows |= {"v": [1] * groups * size, "w": [0.5] * groups * size}
    frame = spark.createDataFrame(pd.DataFrame(rows))
    keys = KeySet.from_dict({"g": [f"{k}" for k in range(groups)]})
    found = []
    for budget, part in (
        (PureDPBudget(2), PureDPBudget(0.4)),
        (RhoZCDPBudget(2), RhoZCDPBudget(0.05)),
    ):
        session = Session.from_dataframe(
            privacy_budget=budget,
            source_id="table",
            dataframe=frame,
            protected_change=AddOneRow(),
        )
        grouped = QueryBuilder("table").groupby(keys)
        for query, column, truth, threshold in (
            (grouped.count(), "count", size, None),
            (grouped.sum("v", 0, 2), "v_sum", size, None),
            (grouped.sum("w", 0.0, 1.0), "w_sum", size / 2, None),
            (grouped.count().suppress(5), "count", size, 5),
        ):
            told = session._noise_info(query, part)
            values = session.evaluate(query, part).toPandas()[column].tolist()
            info = [{k: getattr(v, "name", v) for k, v in each.items()} for each in told]
            info = [{k: v if isinstance(v, str) else float(v) for k, v in i.items()} for i in info]
            found.append(
                {"info": info, "truth": truth, "values": values, "groups": groups}
                | {"threshold": threshold}
            )
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
