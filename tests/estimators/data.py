"""Real data, standardised, spread unequally over five clients."""

import numpy as np
from sklearn.preprocessing import StandardScaler


def spread(load):
    X, y = load(return_X_y=True)
    clients = np.random.default_rng(0).choice(5, size=len(y), p=[0.4, 0.3, 0.15, 0.1, 0.05])
    return StandardScaler().fit_transform(X), y, clients
