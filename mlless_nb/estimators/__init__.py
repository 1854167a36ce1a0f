"""scikit-learn estimators that train on functions: ``pip install 'mlless_nb[sklearn]'``.

::

    from mlless_nb.estimators import MLLessClassifier

    search = GridSearchCV(make_pipeline(StandardScaler(), MLLessClassifier()), {"mllessclassifier__l2": [0.001, 0.1]})

Each ``fit`` is a run, with a budget of its own if it is given one. ``classifier``, ``clustering`` (k-means) and
``recommender`` (matrix factorisation) are one estimator each; ``training`` has their common part.
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("sklearn") is None:
    raise ImportError("scikit-learn is missing: pip install 'mlless_nb[sklearn]'")

from .classifier import MLLessClassifier
from .clustering import MLLessKMeans
from .recommender import MLLessPMF

__all__ = ["MLLessClassifier", "MLLessKMeans", "MLLessPMF"]
