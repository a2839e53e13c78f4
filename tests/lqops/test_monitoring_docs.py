"""The dashboard, the alert rules and the table of metrics name exactly what /metrics has."""

import json
import re

import pytest
import yaml

from agents.conf import clock
from agents.models import Lease
from audit.checkpoints import write_checkpoint
from lqops import metrics
from tests.architecture.source import ROOT

core = pytest.importorskip("prometheus_client.core")
FOLDER = ROOT / "docs" / "monitoring"
METRIC = re.compile(r"\blqops_[a-z_]+\b")
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


@pytest.fixture
def existing(db, settings, tmp_path):
    """The families of /metrics by the names of their samples."""
    settings.LQOPS_CHECKPOINT_FILE = tmp_path / "checkpoints.jsonl"
    write_checkpoint(now=clock())
    Lease.objects.create(name="ticker", owner="host:1", done_at=clock())
    families = list(metrics.InstallationCollector().collect())
    return {f"{family.name}{end}": family for family in families for end in SUFFIXES[family.type]}


def test_dashboard_and_alerts_name_existing_metrics(existing):
    board = json.loads((FOLDER / "dashboard.json").read_text())
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    expressions += [rule["expr"] for group in groups for rule in group["rules"]]

    named = {name for expression in expressions for name in METRIC.findall(expression)}

    assert named <= existing.keys()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    shown = {existing[name].name for name in named}
    assert shown == {family.name for family in existing.values()}  # nothing is measured that nobody looks at


def test_table_of_metrics_is_complete(existing):
    table = (ROOT / "docs" / "monitoring.md").read_text()
    named = set(re.findall(r"^\| `(lqops_\w+)` \|", table, re.MULTILINE))

    assert named == {
        f"{family.name}_total" if family.type == "counter" else family.name for family in existing.values()
    }
