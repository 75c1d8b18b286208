"""A site that is asked: what it has agreed to answer, what it has answered, and the answer itself.

All of this belongs to the site and to no carrier. A carrier such as `gcfcp.flower` moves a message
in and the reply out (`respond`), and decides nothing. The server's half is `gcfcp.carriers`.

    site = Site("hospital-a", Policy(question), Ledger(directory), Records("2026Q4", load))
    answer_summary(site, question)          # bytes, or a Refusal

| module     | what it is for                                                               |
|------------|------------------------------------------------------------------------------|
| `codes`    | the codes for what goes wrong, and the exception that carries one            |
| `question` | what a server asks for                                                       |
| `policy`   | the questions that a site has agreed to answer                               |
| `names`    | file names for whatever clients and data sets are called                     |
| `ledger`   | one frozen answer for each data set and question, on disk at the site        |
| `site`     | a site, and how it answers a question                                        |
| `sums`     | a site's part in a secure sum                                                |
| `steps`    | what a site keeps of a secure sum between two steps                          |
| `settings` | a question and a site from plain settings, for sites that write no Python    |
| `site_file` | a site in a file of settings                                                |
| `own`      | a site from a function of its own, in a file at the site                     |
| `protocol` | requests and replies, as named values or as bytes                            |
| `reply`    | a site's end of a carrier: a message in, an answer or a code out             |
"""

from gcfcp.rounds.codes import FROM_CLIENTS, Code, Refusal
from gcfcp.rounds.ledger import Asked, Entry, Ledger, default_directory, spent
from gcfcp.rounds.names import file_stem
from gcfcp.rounds.own import own_site
from gcfcp.rounds.policy import Policy
from gcfcp.rounds.protocol import (
    AUDIT,
    RECORD,
    SUM,
    SUMMARIZE,
    Record,
    Request,
    pack,
    read_reply,
    unpack,
)
from gcfcp.rounds.question import NamedScore, Question, differences, score_of
from gcfcp.rounds.reply import SILENT, WORK, respond, respond_to_bytes
from gcfcp.rounds.settings import number, question_of, site_of, split, text, whole
from gcfcp.rounds.site import Records, Site, answer_audit, answer_summary, code_of
from gcfcp.rounds.site_file import read_settings, read_site
from gcfcp.rounds.sums import answer_sum, begin_of, summary_of_total, what_is_counted

__all__ = [
    "AUDIT",
    "FROM_CLIENTS",
    "RECORD",
    "SILENT",
    "SUM",
    "SUMMARIZE",
    "WORK",
    "Asked",
    "Code",
    "Entry",
    "Ledger",
    "NamedScore",
    "Policy",
    "Question",
    "Record",
    "Records",
    "Refusal",
    "Request",
    "Site",
    "answer_audit",
    "answer_sum",
    "answer_summary",
    "begin_of",
    "code_of",
    "default_directory",
    "differences",
    "file_stem",
    "number",
    "own_site",
    "pack",
    "question_of",
    "read_reply",
    "read_settings",
    "read_site",
    "respond",
    "respond_to_bytes",
    "score_of",
    "site_of",
    "spent",
    "split",
    "summary_of_total",
    "text",
    "unpack",
    "what_is_counted",
    "whole",
]
