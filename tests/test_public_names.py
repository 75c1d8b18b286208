"""The public names are exactly these, and importing them loads NumPy and nothing else."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import gcfcp

ROOT = Path(__file__).parent.parent

NAMES = {
    "AtomRecord", "Audit", "AuditReport", "Calibration", "ClientSummary", "DigestBuilder",
    "Disclosure", "Exploration", "GCFCPError", "GCFCPWarning", "Grid", "Group", "Groups",
    "Guarantee", "Plan", "Predictor", "Shape", "TDigest", "ThresholdTable", "add", "audit",
    "calibrate", "explore", "fit_shape", "join", "merge", "merge_audits", "methods", "plan",
    "scores", "summarize",
}  # fmt: skip
SCORES = {"APS", "AbsoluteResidual", "CQR", "RAPS", "Score", "THR", "from_name"}
METHODS = {
    "Result", "Sent", "centralized_gcfcp", "condcp", "fedcp", "gcfcp", "group_digest",
    "importance_weighted", "mondrian_fedcp", "split_cp",
}  # fmt: skip


def test_the_public_names_are_exactly_these():
    assert set(gcfcp.__all__) == NAMES
    assert len(gcfcp.__all__) == len(NAMES)
    assert gcfcp.__all__ == sorted(gcfcp.__all__)
    assert set(gcfcp.scores.__all__) == SCORES
    assert set(gcfcp.methods.__all__) == METHODS
    for name in NAMES:
        assert getattr(gcfcp, name) is not None


# The calls that are published. An argument with a star is given by name, and others by position.
SIGNATURES = {
    "summarize": "scores membership *groups *client *delta=250 *representative='upper' "
    "*min_count=1 *score=None *model=None *absent=() *by='atom' *shape=None *holdout=None "
    "*rng=None *grid=None",
    "add": "summaries client=None",
    "join": "parts client *delta=None *min_count=1 *by=None *shape=None *epsilon=None",
    "Grid": "upper_edges",
    "Grid.uniform": "low high cells",
    "Grid.logarithmic": "relative=0.01",
    "Grid.near": "predictor cells=64",
    "Grid.up": "self scores",
    "plan": "summaries alpha=0.1 mixture='proportional'",
    # The rule depends on the summaries: simultaneous by atom, and max by group.
    "calibrate": "summaries alpha mixture='proportional' merge='pool' *rule=None *shape=None "
    "*confidence=None",
    "explore": "summaries alpha=0.1 mixture='proportional' merge='pool' *clients=None",
    "fit_shape": "summaries alpha mixture='proportional'",
    "Shape": "groups coefficients sources=()",
    "Shape.of": "self membership",
    "Shape.save": "self path",
    "Shape.load": "path",
    "Calibration.thresholds": "self membership threshold_rng=None",
    "Calibration.retarget": "self mixture=None alpha=None",
    "Calibration.without": "self *clients",
    "Predictor": "score calibration",
    "Predictor.predict_set": "self prediction membership rng=None *threshold_rng=None",
    "Predictor.predict_interval": "self prediction membership rng=None *threshold_rng=None",
    "Predictor.save": "self path",
    "Predictor.load": "path",
    "Predictor.share_of": "self client",
    "ClientSummary.to_bytes": "self",
    "ClientSummary.from_bytes": "data",
    "ClientSummary.save": "self path",
    "ClientSummary.load": "path",
    "Groups.from_toml": "path",
    "Groups": "names predicates=None *sites=()",
    "Groups.membership": "self data site=None",
    "Groups.from_column": "column values=None *frame=None",
    "Groups.count": "self data site=None",
    "Group": "name condition",
    "Groups.complete": "self membership site *label_dependent=False",
    "TDigest.from_values": "values delta=250 weights=None",
    "TDigest.merge": "self *others",
    "TDigest.cdf": "self t",
    "TDigest.quantile": "self u",
    "scores.APS": "randomized=True",
    "scores.RAPS": "lam=0.01 k_reg=5 randomized=True",
    "scores.THR.of": "self prediction y rng=None",
    "scores.THR.predict": "self prediction thresholds rng=None",
    "audit": "covered membership *groups *client *set_size=None *share=None",
    "merge_audits": "audits mixture=None",
    "methods.split_cp": "clients alpha mixture='uniform'",
    "methods.gcfcp": "clients alpha mixture='uniform' *delta=250 *representative='upper'",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_calls_are_as_published(name):
    """Every published argument exists, in this order. Further arguments may follow."""
    call = gcfcp
    for part in name.split("."):
        call = getattr(call, part)
    parameters = list(inspect.signature(call).parameters.values())
    given = iter(parameters)
    for wanted in SIGNATURES[name].split():
        by_name = wanted.startswith("*")
        wanted, _, default = wanted.removeprefix("*").partition("=")
        found = next(p for p in parameters if p.name == wanted) if by_name else next(given)
        assert found.name == wanted
        if default:
            assert repr(found.default) == default
        elif found.kind is not found.VAR_POSITIONAL:
            assert found.default is found.empty


def test_published_attributes_are_there():
    for owner, names in {
        gcfcp.Calibration: [
            *("table", "guarantee", "correction", "thresholds", "retarget", "without"),
            *("unseen_site", "shape", "confidence"),
        ],
        gcfcp.Predictor: ["shape"],
        gcfcp.ClientSummary: ["disclosure", "absent", "possible"],
        gcfcp.Groups: ["names", "predicates", "sites", "others", "conditions", "fingerprint"],
        gcfcp.TDigest: ["means", "weights", "error", "merge", "cdf", "quantile"],
        gcfcp.AtomRecord: ["membership", "threshold", "count", "weight", "reason"],
        gcfcp.Guarantee: ["lower", "upper", "certified", "effective_n"],
    }.items():
        there = set(dir(owner)) | set(getattr(owner, "__dataclass_fields__", {}))
        assert set(names) <= there, owner


def fresh(program):
    """What a program prints in a new Python process."""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_importing_loads_numpy_and_nothing_else():
    program = (
        "import sys, numpy.random; numpys = set(sys.modules); "
        "import gcfcp, json; new = {m.split('.')[0] for m in set(sys.modules) - numpys}; "
        "print(json.dumps(sorted(new - set(sys.stdlib_module_names))))"
    )
    assert set(json.loads(fresh(program))) <= {"gcfcp", "numpy"}


def test_adapters_come_when_they_are_used():
    program = (
        "import sys, gcfcp; early = 'gcfcp.plots' in sys.modules; gcfcp.plots; "
        "print(early, 'gcfcp.plots' in sys.modules)"
    )
    assert fresh(program) == "False True"
    with pytest.raises(AttributeError, match="module 'gcfcp' has no attribute 'nothing'"):
        gcfcp.nothing  # noqa: B018


def test_importing_has_no_side_effects():
    program = (
        "import warnings, logging, random, numpy as np; "
        "state = [list(warnings.filters), random.getstate(), np.random.get_state()[1].tolist(), "
        "np.geterr(), len(logging.root.handlers)]; import gcfcp; "
        "after = [list(warnings.filters), random.getstate(), np.random.get_state()[1].tolist(), "
        "np.geterr(), len(logging.root.handlers)]; print(state == after)"
    )
    assert fresh(program) == "True"


def test_there_is_one_version():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in settings["project"]["dynamic"]
    assert settings["tool"]["hatch"]["version"]["path"] == "src/gcfcp/version.py"
    assert f"## {gcfcp.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"gcfcp {gcfcp.__version__}" == gcfcp.version.LIBRARY
    assert (Path(gcfcp.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize("name", sorted(NAMES - {"scores", "methods"}))
def test_every_public_name_says_what_it_is(name):
    doc = inspect.getdoc(getattr(gcfcp, name))
    assert doc, name
    assert not re.match(rf"{name}\(.*\)$", doc.splitlines()[0]), f"{name} has no docstring"


def test_errors_are_value_errors_and_warnings_user_warnings():
    assert issubclass(gcfcp.GCFCPError, ValueError)
    assert issubclass(gcfcp.GCFCPWarning, UserWarning)
    errors = importlib.import_module("gcfcp.errors")
    raised = [c for c in vars(errors).values() if isinstance(c, type)]
    assert set(raised) == {gcfcp.GCFCPError, gcfcp.GCFCPWarning}


# --- the reference -----------------------------------------------------------------------------

REFERENCE = ROOT / "docs" / "reference" / "api.md"
_ENTRY = re.compile(r"^::: (\S+)\n((?:    .*\n)*)", re.MULTILINE)


def described():
    """Every name that the reference describes: an entry, its members, or all of a module."""
    found = set()
    for path, options in _ENTRY.findall(REFERENCE.read_text()):
        members = re.search(r"members: \[(.*)\]", options)
        if members:
            found |= {name.strip() for name in members[1].split(",")}
        found.add(path.rpartition(".")[2])
        source = ROOT.joinpath("src", *path.split("."))
        for file in (source.with_suffix(".py"), source / "__init__.py"):
            if file.exists() and not members:
                found |= {name for name in defined(file) if not name.startswith("_")}
    return found


def defined(file):
    """The functions and classes that a module defines. It need not be possible to import it."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, kinds)}


def exported(package):
    """What a package lists in __all__, although its library may be missing."""
    text = (ROOT / "src" / "gcfcp" / package / "__init__.py").read_text()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{package} has no __all__")


def test_the_reference_describes_every_public_name():
    found = described()
    plots = {n for n in defined(ROOT / "src/gcfcp/plots.py") if not n.startswith("_")}
    public = NAMES - {"methods", "scores"} | SCORES | METHODS | plots
    assert public <= found, public - found
    for package in ("sklearn", "flower", "nvflare", "vantage6"):
        assert exported(package) <= found, (package, exported(package) - found)


@pytest.mark.parametrize("owner", ["AuditReport", "Plan", "Disclosure"])
def test_the_reference_describes_what_results_are_made_of(owner):
    """The values in the fields of a result have fields of their own, which a user reads."""
    fields = getattr(gcfcp, owner).__dataclass_fields__.values()
    kinds = {name for f in fields for name in re.findall(r"\b[A-Z]\w+", str(f.type))}
    kinds -= {"Any", "Mapping", "Sequence", "None", "Mixture", "Groups"}
    assert kinds <= described(), kinds - described()
