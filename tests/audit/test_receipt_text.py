"""The receipt for a terminal, where there is no cap, or none that can be read."""

import pytest

from audit.receipt_text import receipt_text
from audit.receipts import build_receipt
from tests.audit.samples import RUN, record_session

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("cap", "said"), [(None, ", without a cap"), ("a lot", " of at most a lot")])
def test_cap_is_told_as_far_as_it_can_be(cap, said):
    record_session()

    assert f"Charged $0.02{said}; 2 calls\n" in receipt_text({**build_receipt(RUN), "max_cost_usd": cap})
