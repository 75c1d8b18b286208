"""gcfcp for a site whose records are in a Spark data frame.

Every partition is read by the code that reads files: the same conditions of groups, the same
scores, the same messages. It gives a summary of its own rows, and the driver joins them to the
summary of the site (`gcfcp.join`). Records stay where they are. The driver gets summaries or
counts, and of records that cannot be used the message about the first. With a grid Spark finds the
cells of the scores and counts equal rows before Python sees them, where the result is the same.

    summary = gcfcp.spark.summarize(df, groups=groups, client="hospital-a")
    with_sets = gcfcp.spark.predict(new, gcfcp.Predictor.load("predictor.json"))
    audit = gcfcp.spark.audit(labelled, predictor, client="hospital-a")

Guarantee: with a grid the summary is that of a file with the same rows, to the last bit. With
digests it is so within the certified error, which the summary carries. Audits and predictions are
those of the file; only sums of interval widths are rounded in another order. A task that fails and
is tried again changes nothing, because Spark takes the reply of one attempt for each partition, and
a task writes nothing elsewhere.

| module        | what it is for                                                    |
|---------------|-------------------------------------------------------------------|
| `frames`      | a data frame and its partitions, as tables are read               |
| `tasks`       | one reply from each partition, and what is wrong in all of them   |
| `site`        | `summarize`: the summary of a site                                |
| `grouping`    | the same with a grid, of rows that Spark has counted              |
| `audits`      | `audit`: counts of labelled records                               |
| `predictions` | `predict`: a set or an interval for every row                     |

PySpark comes with the extra spark, and needs Java 17 or later. The workers need gcfcp with its
extra cli as well. Nothing else in gcfcp imports PySpark. The guide is docs/spark.md.
"""

from gcfcp.libraries import needs as _needs

_needs("pyspark", "gcfcp.spark", "spark")

from gcfcp.spark.audits import audit
from gcfcp.spark.predictions import predict
from gcfcp.spark.site import summarize

__all__ = ["audit", "predict", "summarize"]
