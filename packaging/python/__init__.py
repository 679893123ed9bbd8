"""Starts the program of ROCmForge, which the wheel installs beside Python's own programs."""

import os
import subprocess
import sys
import sysconfig


def find_program():
    """Returns the path of rf-cli."""
    name = "rf-cli" + (sysconfig.get_config_var("EXE") or "")
    package = os.path.dirname(os.path.abspath(__file__))
    folders = [
        sysconfig.get_path("scripts"),
        # pip install --user
        sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user")),
        # pip install --target
        os.path.join(os.path.dirname(package), "bin"),
    ]
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(f"{name} is in none of these folders: {', '.join(folders)}")


def main():
    """Runs rf-cli with the arguments of this process."""
    arguments = [find_program(), *sys.argv[1:]]
    if sys.platform == "win32":
        sys.exit(subprocess.call(arguments))
    os.execv(arguments[0], arguments)
