"""scikit-learn estimators that train over clients."""

from fedcanon.estimators.classifier import FederatedClassifier
from fedcanon.estimators.glm import FederatedCox, FederatedGLM
from fedcanon.estimators.regressor import FederatedRegressor

__all__ = ["FederatedClassifier", "FederatedCox", "FederatedGLM", "FederatedRegressor"]
