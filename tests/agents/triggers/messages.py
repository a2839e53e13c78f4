"""Messages to event triggers, signed as the reference library signs them."""

from standardwebhooks import Webhook

from agents.enums import TriggerKind
from agents.models import AgentSession, InboundEvent
from agents.triggers.events import webhook_receive
from agents.triggers.triggers import trigger_secret
from audit.models import AuditEvent
from tests.factories import NOW, make_trigger

BODY = b'{"type": "invoice.paid", "data": {"amount": 12}}'


def make_hook(**fields):
    return make_trigger(kind=TriggerKind.EVENT, **fields)


def signed(trigger, body=BODY, webhook_id="msg_1", at=NOW, secret=None):
    signature = Webhook(secret or trigger_secret(trigger)).sign(webhook_id, at, body.decode())
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature,
    }


def receive(trigger, headers, body=BODY, now=NOW):
    return webhook_receive(trigger_public_id=trigger.public_id, headers=headers, body=body, now=now)


def send(trigger, body=BODY, now=NOW, **more):
    return receive(trigger, signed(trigger, body, at=now, **more), body, now)


def nothing_was_stored():
    kept = (AgentSession.objects.exists(), InboundEvent.objects.exists(), AuditEvent.objects.exists())
    return kept == (False, False, False)
