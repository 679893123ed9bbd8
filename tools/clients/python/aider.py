"""aider: edits of a file in a git repository, as a stream and as one answer, each committed."""

import os
import pathlib
import subprocess
import sys
import tempfile

BEFORE = 'def greet():\n    print("Hello")\n'
AFTER = 'def greet():\n    print("Hello from the model")\n'
AIDER = [
    pathlib.Path(sys.executable).parent / "aider",
    *("--model", "openai/fixed", "--edit-format", "whole", "--message", "Greet from the model."),
    *("--yes-always", "--no-pretty", "--no-detect-urls", "--no-show-model-warnings"),
    *("--no-show-release-notes", "--no-check-update", "--analytics-disable", "greeting.py"),
]


def run(command, folder):
    """The output of a command in a folder, which is its home, too."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": folder,
        "OPENAI_API_BASE": os.environ["SERVER"] + "/v1",
        "OPENAI_API_KEY": "none",
    }
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def git(folder, *arguments):
    return run(["git", "-c", "user.name=check", "-c", "user.email=check@localhost", *arguments], folder)


for option in "--stream", "--no-stream":
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "greeting.py")
        path.write_text(BEFORE)
        git(folder, "init", "-q")
        git(folder, "add", "greeting.py")
        git(folder, "commit", "-q", "-m", "Greet")
        output = run([*AIDER, option], folder)
        print(output)
        assert "Here is the new version." in output
        assert path.read_text() == AFTER
        # The model writes the message of the commit, too.
        assert git(folder, "show", "HEAD:greeting.py") == AFTER
        assert git(folder, "log", "--format=%s").splitlines() == ["Here is the new version.", "Greet"]
