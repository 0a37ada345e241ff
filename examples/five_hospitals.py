"""Deals a public study of breast cancer out to five made-up hospitals, as tables in a folder.

The rows are real: 686 women of the German Breast Cancer Study Group 2 (Schumacher et al. 1994),
which lifelines brings along. The hospitals are not: a draw with a fixed seed sends each woman to
one of them, so that they differ in age and in the size of tumours.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from lifelines.datasets import load_gbsg2

HOSPITALS = {  # how large it is, and how much it draws older women and larger tumours
    "east": (1.0, 0.9, 0.0),
    "north": (0.8, -0.9, -0.4),
    "south": (0.6, 0.2, -0.9),
    "university": (1.6, -0.2, 0.8),
    "west": (0.5, 0.3, 0.4),
}


def hospitals() -> dict[str, pd.DataFrame]:
    """Return the table of every hospital."""
    women, rng = load_gbsg2(), np.random.default_rng(0)
    traits = women[["age", "tsize"]]
    sizes, *drawn = np.array(list(HOSPITALS.values())).T
    chances = sizes * np.exp(((traits - traits.mean()) / traits.std()).to_numpy() @ drawn)
    places = [rng.choice(list(HOSPITALS), p=row / row.sum()) for row in chances]
    tables = dict(iter(women.groupby(places)))
    # The south lacks some receptor measurements, and the west has its columns in another order.
    south = tables["south"]
    south["progrec"] = south["progrec"].mask(south.index.isin(rng.choice(south.index, 12, False)))
    tables["west"] = tables["west"][sorted(women.columns)]
    return tables


if __name__ == "__main__":
    folder = Path("hospitals")
    folder.mkdir(exist_ok=True)
    print("hospital    women  events  mean age  mean size  missing")
    for name, table in hospitals().items():
        table.to_csv(folder / f"{name}.csv", index=False)
        counts = f"{len(table):5}  {table['cens'].sum():6}"
        means = f"{table['age'].mean():8.1f}  {table['tsize'].mean():9.1f}"
        print(f"{name:10}  {counts}  {means}  {table.isna().to_numpy().sum():7}")
