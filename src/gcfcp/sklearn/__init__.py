"""gcfcp for those who work with scikit-learn: any fitted model goes in, an estimator comes out.

At a site, `summarize` makes the site's summary from a fitted model and its records. Wherever
predictions are made, `ConformalClassifier(model, "predictor.json")` and `ConformalRegressor` give
sets and intervals. On one machine nothing is sent: `conformalize` calibrates in memory.

    summary = summarize(model, X, y, groups=groups, client="hospital-a")
    sets = ConformalClassifier(model, "predictor.json").predict_set(X_new)
    sets = ConformalClassifier(model, groups=groups).conformalize(X, y).predict_set(X_new)

| module       | what it is for                                                        |
|--------------|-----------------------------------------------------------------------|
| `models`     | what a score needs to know of a model: predictions, labels, groups    |
| `site`       | `summarize`: the summary of a site from its model                     |
| `estimators` | `ConformalClassifier` and `ConformalRegressor`                        |

scikit-learn comes with the extra sklearn. Nothing else in gcfcp imports it, but for the demo.
"""

from gcfcp.libraries import needs as _needs

_needs("sklearn", "gcfcp.sklearn", "sklearn")

from gcfcp.sklearn.estimators import ConformalClassifier, ConformalRegressor
from gcfcp.sklearn.site import summarize

__all__ = ["ConformalClassifier", "ConformalRegressor", "summarize"]
