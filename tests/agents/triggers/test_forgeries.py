"""What nobody signed: every forgery is refused, and none leaves a trace."""

import base64
import hashlib
import hmac
from datetime import timedelta
from unittest.mock import patch
from uuid import uuid4

import pytest
from standardwebhooks import Webhook

from agents.enums import TriggerKind
from agents.models import Trigger
from agents.triggers.triggers import trigger_secret
from tests.factories import NOW, make_trigger

from .messages import BODY, make_hook, nothing_was_stored, receive, signed

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
OTHER_KEY = "whsec_" + base64.b64encode(b"k" * 32).decode()


def tampered(**headers):
    return lambda trigger: ({**signed(trigger), **headers}, BODY)


def resigned(change):
    """A signature that was changed after it was made."""

    def forge(trigger):
        headers = signed(trigger)
        return {**headers, "webhook-signature": change(headers["webhook-signature"])}, BODY

    return forge


def without(name):
    return lambda trigger: ({key: value for key, value in signed(trigger).items() if key != name}, BODY)


def signed_with(key):
    def forge(trigger):
        headers = signed(trigger)
        content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + BODY
        digest = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        return {**headers, "webhook-signature": f"v1,{digest}"}, BODY

    return forge


FORGERIES = {
    "another body": lambda trigger: (signed(trigger), BODY + b" "),
    "an empty body": lambda trigger: (signed(trigger), b""),
    "a body that is no text": lambda trigger: (signed(trigger), b"\xff\xfe{}"),
    "another id": tampered(**{"webhook-id": "msg_2"}),
    "an id in other letters": tampered(**{"webhook-id": "MSG_1"}),
    "an id of full-width letters": tampered(**{"webhook-id": "\uff4dsg_1"}),
    "an id that is too long": lambda trigger: (signed(trigger, webhook_id="m" * 256), BODY),
    "no id": without("webhook-id"),
    "an empty id": lambda trigger: (signed(trigger, webhook_id=""), BODY),
    "another time": tampered(**{"webhook-timestamp": str(int(NOW.timestamp()) + 1)}),
    "the same time, written otherwise": tampered(**{"webhook-timestamp": f"0{int(NOW.timestamp())}"}),
    "the same time with a fraction": tampered(**{"webhook-timestamp": f"{int(NOW.timestamp())}.0"}),
    "a time in Arabic figures": tampered(**{"webhook-timestamp": "١٧٧٣٤٧٩٦١٣"}),
    "no number for a time": tampered(**{"webhook-timestamp": "nan"}),
    "a time beyond all calendars": tampered(**{"webhook-timestamp": "9" * 30}),
    "no time": without("webhook-timestamp"),
    "too old": lambda trigger: (signed(trigger, at=NOW - 5 * MINUTE - timedelta(seconds=1)), BODY),
    "too new": lambda trigger: (signed(trigger, at=NOW + 5 * MINUTE + timedelta(seconds=1)), BODY),
    "no signature": without("webhook-signature"),
    "an empty signature": resigned(lambda signature: ""),
    "an empty v1": resigned(lambda signature: "v1,"),
    "only commas and spaces": resigned(lambda signature: " , ,, "),
    "the version of another scheme": resigned(lambda signature: signature.replace("v1,", "v1a,")),
    "a version in capitals": resigned(lambda signature: signature.replace("v1,", "V1,")),
    "no version": resigned(lambda signature: signature.removeprefix("v1,")),
    "letters beyond ASCII": resigned(lambda signature: signature + "é\ud800"),
    "several wrong ones": resigned(lambda signature: " ".join([f"v1,{'A' * 43}="] * 5)),
    "the right one after too many": resigned(lambda signature: "v1,x " * 8 + signature),
    "a signature in lower case": resigned(str.lower),
    "an empty secret": signed_with(b""),
    "another key": lambda trigger: (signed(trigger, secret=OTHER_KEY), BODY),
    "the secret as it is written": lambda trigger: signed_with(trigger_secret(trigger).encode())(trigger),
    "the secret of another trigger": lambda trigger: (signed(trigger, secret=trigger_secret(make_hook())), BODY),
    "the next secret": lambda trigger: (signed(trigger, secret=trigger_secret(trigger, generation=2)), BODY),
    "the secret before the first": lambda trigger: (
        signed(trigger, secret=trigger_secret(trigger, generation=0)),
        BODY,
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused_and_leaves_nothing(name):
    trigger = make_hook()
    headers, body = FORGERIES[name](trigger)
    answer = receive(trigger, headers, body)
    assert (answer.status, answer.code) == (401, "not_signed")
    assert nothing_was_stored()


def test_several_signatures_in_one_header_are_each_looked_at():
    trigger = make_hook()
    headers = signed(trigger)
    several = f"v1a,x v1,{'A' * 43}= {headers['webhook-signature']} v2,y"
    assert receive(trigger, {**headers, "webhook-signature": several}).code == "spawned"


@pytest.mark.parametrize("minutes", [-5, 5])
def test_five_minutes_are_not_too_much(minutes):
    trigger = make_hook()
    assert receive(trigger, signed(trigger, at=NOW + minutes * MINUTE)).code == "spawned"


def test_a_trigger_that_is_not_there_is_not_found_after_the_same_work():
    gone, watch = make_hook(deleted_at=NOW), make_trigger(kind=TriggerKind.WATCH)
    absent = Trigger(public_id=uuid4(), kind=TriggerKind.EVENT)
    with patch.object(Webhook, "sign", autospec=True, side_effect=Webhook.sign) as signing:
        for trigger in (gone, watch, absent):
            headers = signed(gone)
            signing.reset_mock()
            assert receive(trigger, headers).status == 404
            assert signing.call_count == 2
        trigger = make_hook()
        headers = signed(trigger, secret=OTHER_KEY)
        signing.reset_mock()
        assert receive(trigger, headers).status == 401
        assert signing.call_count == 2
    assert nothing_was_stored()


def test_nobody_s_secret_opens_nothing():
    absent = Trigger(public_id=uuid4(), kind=TriggerKind.EVENT)
    assert receive(absent, signed(absent)).status == 404
