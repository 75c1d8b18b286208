"""CSV and Parquet files in, summaries, audits and prediction sets out.

A table has one row for each record. Its columns hold what the score needs (predictions and, except
for new records, the outcome y) and what the conditions of the groups use. A table is read in
batches, so it may be larger than memory.

| module        | what it is for                                             |
|---------------|------------------------------------------------------------|
| `files`       | opens CSV and Parquet files and reads them in batches      |
| `scoring`     | decides which columns make the scores                      |
| `passes`      | goes over a table once, with missing values and groups     |
| `summaries`   | makes the summary of a table                               |
| `audits`      | makes the audit of a labelled table                        |
| `labels`      | finds the prediction sets of a Parquet file by its columns |
| `predictions` | writes the prediction set or interval of every row         |
| `unmatched`   | says why a group has none of the records                   |
"""

from gcfcp.tables.audits import audit_table, count_part, publish_for, scoring_to_audit
from gcfcp.tables.files import Columns, Source, Table, open_table, rows_at_a_time
from gcfcp.tables.passes import Batch, Pass, Progress, Rows, scan, unmatched_groups
from gcfcp.tables.predictions import (
    predict_table,
    predicted,
    refuse_clash,
    scoring_to_predict,
)
from gcfcp.tables.scoring import SCORES, Scoring, scoring, scoring_for
from gcfcp.tables.summaries import summarize_counted, summarize_part, summarize_table
from gcfcp.tables.unmatched import explain_unmatched

__all__ = [
    "SCORES",
    "Batch",
    "Columns",
    "Pass",
    "Progress",
    "Rows",
    "Scoring",
    "Source",
    "Table",
    "audit_table",
    "count_part",
    "explain_unmatched",
    "open_table",
    "predict_table",
    "predicted",
    "publish_for",
    "refuse_clash",
    "rows_at_a_time",
    "scan",
    "scoring",
    "scoring_for",
    "scoring_to_audit",
    "scoring_to_predict",
    "summarize_counted",
    "summarize_part",
    "summarize_table",
    "unmatched_groups",
]
