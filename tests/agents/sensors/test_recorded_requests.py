"""What signals of sensors really send."""

import pytest

from agents.models import InferenceLog
from tests.agents.sensors.conftest import MODEL
from tests.agents.sensors.scene import Scene, poll, running_slice
from tests.agents.sensors.sources import Web
from tests.factories import make_price
from tests.flows.processes import until
from tests.wire import PLAIN, recording

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_question_of_a_signal_is_what_strict_servers_take(serving, model):
    make_price(MODEL)
    signal = {"name": "anomaly", "model": MODEL, "prompt": "Is this odd?"}
    with recording(PLAIN) as bodies:
        model("0.9")
        Scene(poll(serving(Web, {"n": 1}).url, signals=[signal]), fields={"value": "object"})
        with running_slice():
            until(InferenceLog.objects.exists)
    assert len(bodies) == 1
