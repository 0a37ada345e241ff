"""A small convex problem over three very different clients, and its solution by scikit-learn."""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

CLIENTS = 3
KAPPA = 0.08

SETTINGS = {
    "precision": "float64",
    "batch_size": "full",
    "data.name": "breast_cancer",
    "model.name": "logistic",
    "penalty.name": "l1",
    "penalty.kappa": KAPPA,
    "algorithm.name": "fedcanon+",
    "algorithm.alpha": 9.0,
    "algorithm.beta": 0.2,
    "algorithm.local_steps": 5,
}


def samples():
    """Whitened features and labels, in the order of the first feature: clients differ much."""
    features, labels = load_breast_cancer(return_X_y=True)
    features = (features - features.mean(0)) / features.std(0)
    features = PCA(8, whiten=True, random_state=0).fit_transform(features)
    kept = np.argsort(features[:, 0], kind="stable")[: len(labels) // CLIENTS * CLIENTS]
    return features[kept].astype(np.float32), labels[kept]


def write_clients(folder):
    """A file for each client; the model is measured on a part of what it is trained on."""
    features, labels = samples()
    for client, own in enumerate(np.array_split(np.arange(len(labels)), CLIENTS)):
        np.savez(folder / f"client-{client}.npz", features=features[own], labels=labels[own])


def solution():
    """The coefficients and the intercept of the centralised optimum."""
    features, labels = samples()
    oracle = LogisticRegression(
        l1_ratio=1.0, C=1 / (KAPPA * len(labels)), solver="saga", tol=1e-12, max_iter=100_000
    ).fit(features.astype(np.float64), labels)
    return np.concatenate([oracle.coef_.ravel(), oracle.intercept_])
