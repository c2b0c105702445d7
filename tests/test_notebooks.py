"""The notebooks run from top to bottom on fresh results, and hold neither outputs nor logic."""

import ast
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests import fork_server
from tests.launching import completed

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OF_A_FIGURE = "image/png"
TOPK_01 = "topk controller.density=0.1"
FED = "dc2_da3 +controller/delay_source=dc2_dynamic_laptop"
RUNS = {  # some of each that the notebooks read: methods, and how many workers
    "quickstart": (["allreduce", TOPK_01], 2),
    "dc2_imagenet_dynamic": (["allreduce,dc2_da2", TOPK_01], 2),
    "dc2_imagenet_fed": (["allreduce", FED], 2),
    "netsense_resnet18_degrading": (["allreduce,netsense"], 2),
    "dct_fig2": (["dct_dp controller.density=0.5,0.05"], 1),
    "covap_fig1": (["allreduce", "topk compressor=covap controller.density=0.34"], 16),
    "acp_fig4": (["allreduce,acp_sgd"], 8),
    "dct_fig8c": (["hogwild", "dct_hogwild controller.density=0.25,0.1,0.05"], 2),
}
FEW = ("scale=laptop", "network=calibrated", "steps=12", "eval_every=4", "seed=0")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Runs in virtual time, small ones."""
    folder = tmp_path_factory.mktemp("results")
    for experiment, (methods, workers) in RUNS.items():
        for method in methods:
            chosen = (f"+experiment={experiment}", *f"method={method}".split())
            where = (f"workers={workers}", f"results={folder}", "report=false")
            command = [sys.executable, "-m", "harness", "-m", *chosen, *FEW, *where]
            completed(command, 120).check_returncode()
    return folder


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def kernel(command: list[str], **options: Any) -> fork_server.Forked:
    """A kernel by what has imported all that notebooks do."""
    return fork_server.Forked(fork_server.server(), command, **options)


def code(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_a_notebook_is_stored_without_outputs(notebook):
    assert code(notebook)
    for cell in code(notebook):
        assert not cell.outputs and cell.execution_count is None


def test_a_notebook_has_no_logic_of_its_own(notebook):
    lines = [line for cell in code(notebook) for line in cell.source.splitlines()]
    tree = ast.parse("\n".join(line for line in lines if not line.startswith("%")))
    logic = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.If, ast.While, ast.Try)
    assert not [node for node in ast.walk(tree) if isinstance(node, logic)]
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in modules} <= {"harness", "pathlib", "IPython"}


@pytest.mark.long
def test_a_notebook_runs_from_top_to_bottom_and_shows_figures(notebook, results, monkeypatch):
    monkeypatch.setenv("GRADNET_RESULTS", str(results))
    monkeypatch.setattr("jupyter_client.launcher.Popen", kernel)
    here = {"metadata": {"path": str(ROOT / "notebooks")}}
    NotebookClient(notebook, timeout=250, resources=here).execute()
    shown = [output.get("data", {}) for cell in code(notebook) for output in cell.outputs]
    assert sum(OF_A_FIGURE in data for data in shown) >= 3
    assert sum("text/html" in data for data in shown) >= 3
