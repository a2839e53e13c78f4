"""Reads settings from the environment. Every error names the variable, the value and what is expected.

`NAME_FILE` may stand in for any secret `NAME`: the value is then the file's content. Secrets that nobody has set are
made once and kept in the var folder, readable by the owner alone; nothing ever runs with a default key.
"""

import importlib.util
import ipaddress
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

LEAST_SECRET_CHARS = 32
LEAST_NAMED_CHARS = 8
SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
COUNT = re.compile(r"[0-9]{1,7}")
TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off", ""})


class Env:
    """A typed view of the process environment."""

    def __init__(self, values: Mapping[str, str] = os.environ) -> None:
        self._values = values

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def flag(self, name: str, *, default: bool) -> bool:
        raw = self._values.get(name)
        if raw is None:
            return default
        word = raw.strip().lower()
        if word in TRUE:
            return True
        if word in FALSE:
            return False
        raise ImproperlyConfigured(f"{name}={raw!r} is not a yes or no: use 1 or 0.")

    def whole(self, name: str, default: int, *, least: int = 0) -> int:
        raw = self._values.get(name)
        if raw is None:
            return default
        try:
            value = int(raw)
        except ValueError:
            raise ImproperlyConfigured(f"{name}={raw!r} is not a whole number.") from None
        if value < least:
            raise ImproperlyConfigured(f"{name}={raw!r} is too small: the least is {least}.")
        return value

    def seconds(self, name: str, default: float) -> float:
        raw = self._values.get(name)
        if raw is None:
            return default
        try:
            value = float(raw)
        except ValueError:
            value = -1.0
        if not 0 < value < float("inf"):
            raise ImproperlyConfigured(f"{name}={raw!r} is not a number of seconds above 0.")
        return value

    def usd(self, name: str, default: str) -> Decimal:
        raw = self._values.get(name, default)
        try:
            value = Decimal(raw)
        except InvalidOperation:
            value = Decimal("NaN")
        if not value.is_finite() or value < 0 or value != round(value, 6):
            raise ImproperlyConfigured(f"{name}={raw!r} is not an amount in US dollars (0 or more, at most 6 places).")
        return value

    def one_of(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        value = self._values.get(name, default).upper()
        if value not in allowed:
            raise ImproperlyConfigured(f"{name}={value!r} is not one of {', '.join(allowed)}.")
        return value

    def networks(self, name: str) -> list[str]:
        found = self.listed(name)
        for network in found:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise ImproperlyConfigured(f"{name}: {error}; write networks as in 10.1.0.0/16.") from None
        return found

    def web_address(self, name: str, default: str) -> str:
        """An address of a site, without a slash at the end."""
        raw = self._values.get(name, default)
        parts = urlsplit(raw)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ImproperlyConfigured(f"{name}={raw!r} is not the address of a site, such as https://ops.example.org.")
        return raw.rstrip("/")

    def listed(self, name: str, default: str = "") -> list[str]:
        return [item.strip() for item in self._values.get(name, default).split(",") if item.strip()]

    def counts(self, name: str, allowed: tuple[str, ...]) -> dict[str, int]:
        """Whole numbers by name, as in `A=1,B=20`; empty when nothing is said."""
        found = {}
        for item in self.listed(name):
            what, _, number = (part.strip() for part in item.partition("="))
            if what.upper() not in allowed or not COUNT.fullmatch(number):
                raise ImproperlyConfigured(
                    f"{name}: {item!r} is not a whole number for one of {', '.join(allowed)}, as in {allowed[0]}=30."
                )
            found[what.upper()] = int(number)
        return found

    def mapping(self, name: str) -> dict[str, Any]:
        """A JSON object; empty when nothing is said."""
        text = self.text(name, "{}")
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ImproperlyConfigured(f'{name} must be a JSON object, such as {{"max_steps": 20}}, not {text!r}.')
        return value

    def secret(self, name: str, *, kept_in: Path) -> str:
        """The secret itself, or the content of `NAME_FILE`, or a value made once and kept in the var folder."""
        if value := self._values.get(name):
            return _long_enough(name, value)
        if path := self._values.get(f"{name}_FILE"):
            return _long_enough(f"{name}_FILE", _read_secret(f"{name}_FILE", Path(path)))
        kept = kept_in / name.removeprefix("LQOPS_").lower()
        try:
            return _long_enough(str(kept), kept_secret(kept))
        except OSError as error:
            raise ImproperlyConfigured(f"LQOPS_VAR_DIR={str(kept_in)!r} cannot be used: {error.strerror}.") from error

    def has_secret(self, name: str, *, kept_in: Path) -> bool:
        """True when the secret is set or kept already, so that none would be made."""
        kept = kept_in / name.removeprefix("LQOPS_").lower()
        return any(self._values.get(variable) for variable in (name, f"{name}_FILE")) or kept.exists()

    def secret_behind(self, name: str) -> str:
        """The value of a variable that holds a secret, or of its `_FILE`; empty when there is none."""
        if not name:
            return ""
        if value := self._values.get(name):
            return value
        path = self._values.get(f"{name}_FILE")
        return _read_secret(f"{name}_FILE", Path(path)) if path else ""

    def named_secrets(self, prefix: str, *, but: tuple[str, ...] = ()) -> dict[str, str]:
        """The secrets in variables that begin alike, by the rest of their names, in small letters. `but` are not."""
        found = {name.removeprefix(prefix).removesuffix("_FILE") for name in self._values if name.startswith(prefix)}
        read = {name: self.secret_behind(f"{prefix}{name}") for name in sorted(found - {"", *but})}
        for name, value in read.items():
            if not SECRET_NAME.fullmatch(name):
                raise ImproperlyConfigured(f"{prefix}{name}: a secret is named in capitals, digits and _, at most 64.")
            if value and len(value) < LEAST_NAMED_CHARS:
                raise ImproperlyConfigured(
                    f"{prefix}{name} holds {len(value)} characters; less than {LEAST_NAMED_CHARS} cannot be masked."
                )
        return {name.lower(): value for name, value in read.items() if value}

    def database(self, name: str, *, default: str) -> dict[str, Any]:
        return parse_database_url(name, self._values.get(name) or default)


def masked_forms(value: str) -> list[str]:
    """A secret as a whole, and the parts of it that are one by themselves, as the second word of "Bearer …"."""
    return [value, *(part for part in value.split() if len(part) >= LEAST_NAMED_CHARS)]


def _long_enough(where: str, value: str) -> str:
    if len(value) < LEAST_SECRET_CHARS:
        raise ImproperlyConfigured(
            f"{where} holds {len(value)} characters; a secret needs {LEAST_SECRET_CHARS} or more."
        )
    return value


def _read_secret(name: str, path: Path) -> str:
    try:
        value = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ImproperlyConfigured(f"{name}: {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise ImproperlyConfigured(f"{name}: {path} is not text.") from None
    if not value:
        raise ImproperlyConfigured(f"{name}: {path} is empty.")
    return value


def kept_secret(path: Path) -> str:
    """Reads a secret from the var folder, making it first if it is not there; two first runs agree on one value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    if not path.exists():
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(48), encoding="utf-8")
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return _read_secret(f"LQOPS_{path.name.upper()}", path)


def _port(name: str, parts: SplitResult) -> str:
    try:
        return str(parts.port or "")
    except ValueError:
        raise ImproperlyConfigured(f"{name} names a port that is not a number from 1 to 65535.") from None


def parse_database_url(name: str, url: str) -> dict[str, Any]:
    """`sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user:password@host:port/name?option=value`."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        path = unquote(parts.path.removeprefix("/"))
        if not path or parts.netloc:
            raise ImproperlyConfigured(f"{name}={url!r} names no file: use sqlite:///var/lqops.sqlite3.")
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": path}
    if parts.scheme in {"postgres", "postgresql"}:
        if importlib.util.find_spec("psycopg") is None:
            raise ImproperlyConfigured(
                f"{name} names PostgreSQL: install its driver with .venv/bin/pip install -e '.[postgres]' in the "
                "folder of lqops."
            )
        database = unquote(parts.path.removeprefix("/"))
        if not database:
            raise ImproperlyConfigured(f"{name} names no database: use postgresql://user:password@host:5432/lqops.")
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": database,
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": unquote(parts.hostname or ""),
            "PORT": _port(name, parts),
            "OPTIONS": dict(parse_qsl(parts.query)),
        }
    raise ImproperlyConfigured(
        f"{name} starts with {parts.scheme!r}: lqops runs on sqlite:///… (embedded) or postgresql://…."
    )


# What lqops keeps is its owner's alone: the var folder, the documents in it, and the file of an embedded database.
#
# An installation that is already there is tightened when it is started. A system or disk that does not let modes be
# set is left as it is: who may use the folder is then decided there.


FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
OTHERS: Final = 0o077
BESIDE: Final = ("", "-wal", "-shm", "-journal")


def private_process() -> None:
    """From now on nothing that this process or its children make is for others; each way in calls it first."""
    os.umask(OTHERS)


def private_folder(folder: Path) -> Path:
    """The folder, made if need be; what cannot be made is found by whoever uses it."""
    with suppress(OSError):
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        _tighten(folder, FOLDER_MODE)
    return folder


def private_database(name: str) -> None:
    """The file of an embedded database and what SQLite puts beside it, where they are already there."""
    path = Path(name)
    for ending in BESIDE:
        with suppress(OSError):
            _tighten(path.with_name(path.name + ending), FILE_MODE)


def _tighten(path: Path, mode: int) -> None:
    held = stat.S_IMODE(path.stat().st_mode)
    if held & ~mode:
        path.chmod(held & mode)
