"""`plan --certificate` and `check`: what is true is accepted, everything false is refused with its place."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dovetail.certificate.file import Certificate, plan_digest, read
from dovetail.cli.program import main
from lib.proofs.false_certificates import CLAIMS, falsified

MODEL = str(Path(__file__).parents[2] / "examples" / "fashion" / "fashion.onnx")
CASES = 40


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plans of the bundled example with their certificates, by board and goal."""
    folder = tmp_path_factory.mktemp("certified")
    for board, goal in (("tx2", "latency"), ("tx2-c10gx", "energy"), ("ecp5-85", "throughput")):
        assert main(["plan", MODEL, "-p", board, "--objective", goal, "--fold", "none", "-o", str(folder / f"{board}.json"),
                     "--certificate", str(folder / f"{board}.cert")]) == 0
    return folder


@pytest.mark.parametrize("board", ["tx2", "tx2-c10gx", "ecp5-85"])
def test_a_plan_and_its_certificate_are_accepted(made: Path, board: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(made / f"{board}.json"), str(made / f"{board}.cert"), "--json", "-"]) == 0
    verdict, plan = json.loads(capsys.readouterr().out), json.loads((made / f"{board}.json").read_text())
    assert verdict["accepted"]
    assert verdict["objective"] == pytest.approx(plan["objective"], rel=1e-9)
    assert plan["lower_bound"] <= verdict["bound"] * (1 + 1e-7)
    assert verdict["gap"] <= 0.02
    assert main(["check", str(made / f"{board}.json"), str(made / f"{board}.cert")]) == 0
    assert capsys.readouterr().out.startswith("accepted: the plan is legal and takes ")


def test_numbers_are_written_as_they_are_read_whatever_their_type() -> None:
    forms = ((7, None, {"limit": np.float64(0.1)}),)
    text = Certificate("plan", "a", "b", "latency", np.float64(1.5), forms).text()
    assert read(text).bound == 1.5
    assert read(text).forms == ((7, None, {"limit": 0.1}),)


def test_nothing_false_is_accepted(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`bench/false_certificates.py` does this a thousand times."""
    plan, proof = tmp_path / "plan.json", tmp_path / "plan.cert"
    for case in range(CASES):
        board = ("tx2", "tx2-c10gx", "ecp5-85")[case % 3]
        what, *texts = falsified((made / f"{board}.json").read_text(), (made / f"{board}.cert").read_text(), case)
        plan.write_text(texts[0])
        proof.write_text(texts[1])
        assert main(["check", str(plan), str(proof)]) in (1, 2), (case, what)
        assert capsys.readouterr().err.splitlines()[-1].startswith("dovetail: "), (case, what)


def test_every_claim_is_named_where_it_is_false(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    document, claims = json.loads((made / "ecp5-85.json").read_text()), read((made / "ecp5-85.cert").read_text())
    for seed in range(0, 200, 2):
        what, plan, proof = falsified(json.dumps(document), claims.text(), seed)
        if what not in said:
            (tmp_path / "plan.json").write_text(plan)
            (tmp_path / "plan.cert").write_text(proof)
            assert main(["check", str(tmp_path / "plan.json"), str(tmp_path / "plan.cert")]) == 1
            said[what] = capsys.readouterr().err.splitlines()[-1]
    assert set(said) == {name for name, _ in CLAIMS}
    assert ", lower_bound: " in said["bound of the plan"]
    assert "line 7: these prices do not prove that no plan" in said["bound"]
    assert "plan, resources of fpga: " in said["resource"]
    assert "line 3: another network" in said["network"]
    assert "line 5: goal " in said["goal"]


@pytest.mark.parametrize(("lines", "said"), [
    (["dovetail certificate 2"], "line 1: "), (["dovetail certificate 1", "command run x"], "line 2: it is not the digest"),
])
def test_another_file_is_refused(lines: list[str], said: str, made: Path, tmp_path: Path,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wrong.cert").write_text("\n".join([*lines, ""]))
    assert main(["check", str(made / "tx2.json"), str(tmp_path / "wrong.cert")]) == 1
    assert said in capsys.readouterr().err


def test_a_command_in_a_certificate_is_read_and_never_run(made: Path, tmp_path: Path,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    claims = read((made / "tx2.cert").read_text())
    target = tmp_path / "written.json"
    for command, said in ((f"zoo export squeezenet1.1 -o {target}", "certificate, line 2: "),
                          (f"inspect {MODEL} --json {target}", "makes no plan"), ("plan 'unclosed", "certificate, line 2: ")):
        forged = Certificate(command, claims.graph, claims.plan, claims.goal, claims.bound, claims.forms)
        (tmp_path / "forged.cert").write_text(forged.text())
        assert main(["check", str(made / "tx2.json"), str(tmp_path / "forged.cert")]) == 1
        assert said in capsys.readouterr().err
        assert not target.exists()


def test_a_model_that_moved_is_named_or_refused(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moved = tmp_path / "moved.onnx"
    moved.write_bytes(Path(MODEL).read_bytes())
    claims, document = read((made / "tx2.cert").read_text()), json.loads((made / "tx2.json").read_text())
    forged = Certificate(claims.command.replace(MODEL, str(tmp_path / "gone.onnx")), claims.graph, plan_digest(document),
                         claims.goal, claims.bound, claims.forms)
    (tmp_path / "gone.cert").write_text(forged.text())
    assert main(["check", str(made / "tx2.json"), str(tmp_path / "gone.cert")]) == 2
    assert "gone.onnx" in capsys.readouterr().err
    assert main(["check", str(made / "tx2.json"), str(tmp_path / "gone.cert"), "--model", str(moved)]) == 0


def test_plans_without_certificates_are_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more, said in ((["--objective", "edp"], "plans for edp"), (["--mode", "sequential"], "sequential mode"),
                       (["--budget", "per_layer"], "budgets by layer")):
        assert main(["plan", MODEL, "-p", "tx2", *more, "--certificate", str(tmp_path / "x.cert")]) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "x.cert").exists()


@pytest.mark.parametrize(("bound", "forms", "said"), [
    (0.0, None, "line 6: a bound of 0"), (None, ((0, None, {}),), "line 7: these prices do not prove"),
    (None, ((0, None, {"cpu": 1e308, "fpga lut": 1e308}),), "line 7: "),
])
def test_bounds_and_prices_that_say_nothing_are_refused(
        bound: float | None, forms: tuple[tuple[int, None, dict[str, float]]] | None, said: str, made: Path, tmp_path: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    claims, document = read((made / "ecp5-85.cert").read_text()), json.loads((made / "ecp5-85.json").read_text())
    document["lower_bound"] = claims.bound if bound is None else bound
    forged = Certificate(claims.command, claims.graph, plan_digest(document), claims.goal,
                         claims.bound if bound is None else bound, claims.forms if forms is None else forms)
    (tmp_path / "plan.json").write_text(json.dumps(document))
    (tmp_path / "plan.cert").write_text(forged.text())
    assert main(["check", str(tmp_path / "plan.json"), str(tmp_path / "plan.cert")]) == 1
    assert said in capsys.readouterr().err
