"""scikit-learn over clients: hospitals keep their patients, a grid search finds the sparsity."""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedcanon.estimators import FederatedClassifier

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
rng = np.random.default_rng(0)
hospitals = rng.choice(["north", "south", "east", "west"], size=len(y), p=[0.5, 0.3, 0.15, 0.05])

pipeline = make_pipeline(StandardScaler(), FederatedClassifier(penalty="l1"))
search = GridSearchCV(pipeline, {"federatedclassifier__kappa": [0.3, 0.1, 0.05]}, cv=3)
search.fit(X, y, federatedclassifier__groups=hospitals)

for parameters, accuracy in zip(
    search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
):
    print(f"kappa {parameters['federatedclassifier__kappa']:<5} accuracy {accuracy:.3f}")
best = search.best_estimator_[-1]
print(f"{best.n_iter_} rounds, {best.records_[-1].cost.bytes_up:,} bytes up; what is left:")
for weight, name in sorted(zip(best.coef_[0], X.columns, strict=True)):
    if weight:
        print(f"  {weight:+.3f}  {name}")
