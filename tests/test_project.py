"""What the project says of itself to those who work on it: addresses, versions, the form of commits."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import commit_message  # noqa: E402
import lint  # noqa: E402
import make_wheel  # noqa: E402


def test_one_address() -> None:
    """Whatever points to the project on GitHub points to where pyproject.toml says that it is."""
    home = make_wheel.project()["urls"]["Source"]
    name = home.rpartition("/")[2]
    for file in lint.tracked(".md", ".yml", ".yaml", ".toml", ".py", ".c", ".h", ".txt"):
        for found in re.findall(rf"https://github\.com/[\w.-]+/{name}\b", (ROOT / file).read_text()):
            assert found == home, file


def test_addresses_lead_to_files() -> None:
    home = make_wheel.project()["urls"]["Source"]
    for file in lint.tracked(".md", ".yml", ".toml"):
        for path in re.findall(rf"{re.escape(home)}/(?:blob|tree)/main/([\w./-]+)", (ROOT / file).read_text()):
            assert (ROOT / path).exists(), (file, path)


def test_description_of_the_wheel_links_to_the_project() -> None:
    text = make_wheel.description()
    links = [a or b for a, b in re.findall(r'\]\(([^)\s]+)\)|\bsrc(?:set)?="([^"]+)"', text)]
    assert any(link.endswith(".md") for link in links) and any(link.endswith(".svg") for link in links)
    assert all(link.startswith(("https://", "#")) for link in links)


def test_changelog_has_the_version() -> None:
    headings = re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", heading) for heading in headings[1:])
    assert headings[1].split()[0] == make_wheel.project()["version"]
    kinds = re.findall(r"^### (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {*kinds} <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


MESSAGES = {
    "Softmax takes a mask\n\nWhy it does.\n": "",
    f"{'x' * 72}\n": "",
    f"{'x' * 73}\n": "73 characters",
    f"{'é' * 72}\n\n{'y' * 100}\n": "",
    "Softmax takes a mask\nWhy it does.\n": "not empty",
    f"# {'x' * 80}\n\nSoftmax takes a mask\n# Please enter the commit message\n": "",
    "": "",
}


@pytest.mark.parametrize("message", MESSAGES)
def test_commit_messages(message: str, tmp_path: Path) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message)
    command = [sys.executable, ROOT / "tools" / "commit_message.py", file]
    done = subprocess.run(command, capture_output=True, text=True)
    fault = MESSAGES[message]
    assert done.returncode == bool(fault)
    assert fault in done.stderr


def test_commit_messages_of_a_range(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        about = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *about, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for message in ("First", "x" * 80, "Third\n\nWhy."):
        git("commit", "--allow-empty", "--no-verify", "-m", message)
    command = [sys.executable, ROOT / "tools" / "commit_message.py", "--range"]
    for commits, rows in (("HEAD~2..HEAD", 1), ("HEAD~1..HEAD", 0)):
        done = subprocess.run([*command, commits], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, len(done.stderr.splitlines())) == (rows, rows)
    assert commit_message.MOST == 72
