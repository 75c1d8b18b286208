"""GC-FCP over NVIDIA FLARE: a recipe at the server, an executor at every site.

A job of FLARE asks every site a question and brings the answers back. It holds the question and no
code: the classes that it names are those of the gcfcp that is installed at each site, so a site can
refuse every job that brings code. What a site answers is in a file of its own below the directory
`local` of its startup kit, which no job can write. A round is conducted by `gcfcp.carriers`, and
what a site does is `gcfcp.rounds`; FLARE moves the bytes.

    recipe = CalibrationRecipe(question, Target(0.1, audit=True), Terms(min_clients=3))
    recipe.execute(SimEnv(clients=["hospital-a", "hospital-b", "hospital-c"]))

| module       | what it is for                                                          |
|--------------|-------------------------------------------------------------------------|
| `recipe`     | the job: what is asked for, and which classes do it                     |
| `controller` | conducts the round in the server's job process                          |
| `carrier`    | a task for each site, and the results that come back                    |
| `executor`   | a site's answer to a task                                               |

FLARE comes with the extra nvflare. Nothing else in gcfcp imports it. The guide is docs/nvflare.md.
"""

from gcfcp.libraries import needs as _needs

_needs("nvflare", "gcfcp.nvflare", "nvflare")

from gcfcp.carriers import Target, Terms
from gcfcp.nvflare.controller import CalibrationController
from gcfcp.nvflare.executor import SiteExecutor
from gcfcp.nvflare.recipe import CalibrationRecipe
from gcfcp.rounds import Code, Policy, Question, Site

__all__ = [
    "CalibrationController",
    "CalibrationRecipe",
    "Code",
    "Policy",
    "Question",
    "Site",
    "SiteExecutor",
    "Target",
    "Terms",
]
