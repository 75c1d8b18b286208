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
| `predictions` | writes the prediction set or interval of every row         |
| `unmatched`   | says why a group has none of the records                   |
"""

from gcfcp.tables.audits import audit_table
from gcfcp.tables.files import Table, open_table
from gcfcp.tables.passes import Progress, Rows
from gcfcp.tables.predictions import predict_table
from gcfcp.tables.scoring import SCORES, Scoring, scoring, scoring_for
from gcfcp.tables.summaries import summarize_table
from gcfcp.tables.unmatched import explain_unmatched

__all__ = [
    "SCORES",
    "Progress",
    "Rows",
    "Scoring",
    "Table",
    "audit_table",
    "explain_unmatched",
    "open_table",
    "predict_table",
    "scoring",
    "scoring_for",
    "summarize_table",
]
