"""LQOPS_SKILL_FOLDERS: the folders that are searched for skills."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READ = "import json; from lqops import settings; print(json.dumps([str(one) for one in settings.LQOPS_SKILL_FOLDERS]))"


def folders(var, **values):
    env = {name: value for name, value in os.environ.items() if not name.startswith("LQOPS_")}
    env |= {"LQOPS_VAR_DIR": str(var), **values}
    done = subprocess.run([sys.executable, "-c", READ], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_samples_are_the_default(tmp_path):
    assert folders(tmp_path) == [str(ROOT / "samples/skills")]


def test_several_folders_keep_their_order(tmp_path):
    named = folders(tmp_path, LQOPS_SKILL_FOLDERS=f"{tmp_path}/b, relative/a,")

    assert named == [f"{tmp_path}/b", str(ROOT / "relative/a")]
