"""Tables on disk to scores and memberships, and back to prediction sets: CSV or Parquet.

A table is read in batches, so it may be larger than memory.

| module        | what it is for                                       |
|---------------|------------------------------------------------------|
| `files`       | CSV and Parquet, read in batches                     |
| `scoring`     | which columns make the scores                        |
| `passes`      | one pass over a table, with missing values and groups |
| `summaries`   | the summary of a table                               |
| `audits`      | the audit of a labelled table                        |
| `predictions` | prediction sets or intervals, written to a table     |
"""

from gcfcp.tables.audits import audit_table
from gcfcp.tables.files import Table, open_table
from gcfcp.tables.passes import Progress, Rows
from gcfcp.tables.predictions import predict_table
from gcfcp.tables.scoring import SCORES, Scoring, scoring, scoring_for
from gcfcp.tables.summaries import summarize_table

__all__ = [
    "SCORES",
    "Progress",
    "Rows",
    "Scoring",
    "Table",
    "audit_table",
    "open_table",
    "predict_table",
    "scoring",
    "scoring_for",
    "summarize_table",
]
