"""A site that is asked: what it has agreed to answer, what it has answered, and the answer itself.

All of this belongs to the site and to no carrier. A carrier such as `gcfcp.flower` moves the bytes
of a question in and those of an answer out, and turns what is raised here into a code.

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
| `settings` | a question and a site from plain settings, for sites that write no Python    |
"""

from gcfcp.rounds.codes import FROM_CLIENTS, Code, Refusal
from gcfcp.rounds.ledger import Asked, Entry, Ledger, default_directory, spent
from gcfcp.rounds.names import file_stem
from gcfcp.rounds.policy import Policy
from gcfcp.rounds.question import NamedScore, Question, differences, score_of
from gcfcp.rounds.settings import number, question_of, site_of, split, text, whole
from gcfcp.rounds.site import Records, Site, answer_audit, answer_summary, code_of

__all__ = [
    "FROM_CLIENTS",
    "Asked",
    "Code",
    "Entry",
    "Ledger",
    "NamedScore",
    "Policy",
    "Question",
    "Records",
    "Refusal",
    "Site",
    "answer_audit",
    "answer_summary",
    "code_of",
    "default_directory",
    "differences",
    "file_stem",
    "number",
    "question_of",
    "score_of",
    "site_of",
    "spent",
    "split",
    "text",
    "whole",
]
