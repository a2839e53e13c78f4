"""Writes an agent.yaml for an agent that never had one. Pure values in, text out; reading it gives the same values."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import yaml

LINE_CHARS: Final = 100


def write_definition(values: Mapping[str, Any]) -> str:
    """The keys in the order given; what is empty is left out."""
    kept = {key: value for key, value in values.items() if value not in (None, "", [], {})}
    return yaml.dump(kept, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=LINE_CHARS)


class _Dumper(yaml.SafeDumper):
    """Knows amounts of money, which are exact."""


def _amount(dumper: yaml.SafeDumper, amount: Decimal) -> yaml.ScalarNode:
    kind = "int" if amount == amount.to_integral_value() else "float"
    return dumper.represent_scalar(f"tag:yaml.org,2002:{kind}", f"{amount.normalize():f}")


_Dumper.add_representer(Decimal, _amount)
_Dumper.add_multi_representer(str, lambda dumper, text: dumper.represent_str(str(text)))
