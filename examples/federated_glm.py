"""A sparse model over the tables of hospitals: coefficients, their errors, and predictions."""

import numpy as np
from sklearn.datasets import load_diabetes

from fedcanon.estimators import FederatedGLM

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
rng = np.random.default_rng(0)
X.loc[rng.choice(len(X), 30, replace=False), "bp"] = np.nan  # not everybody was measured
hospitals = rng.choice(["north", "south", "east", "west"], size=len(y), p=[0.5, 0.3, 0.15, 0.05])

model = FederatedGLM("gaussian", categories=["sex"], free=["age"])
model.fit(X, y, groups=hospitals)

print(f"kappa {model.kappa_:.3g}, D² {model.score(X, y):.3f}")
table = model.summary()
print(table.loc[table["refit"].notna(), ["coefficient", "refit", "error", "p"]].round(4))
print("of three patients:", model.predict(X[:3]).round(1))
