"""Typed access to the environment. Every error is one line that names the variable and says what to write.

Any secret `NAME` can be given as `NAME_FILE`: the value is then the content of that file. Secrets that are not set are
created once in the data folder; nothing ever runs with a default key.
"""

import importlib.util
import ipaddress
import json
import os
import re
import resource
import secrets
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from math import inf
from pathlib import Path
from ssl import PROTOCOL_TLS_CLIENT, SSLContext, SSLError
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

from agents.policy.destinations import BadHost, host_checked
from lqops.data_folder import DataFolder, data_folder

# Files for the owner alone: the data folder, its documents and secrets, and the file of an embedded database.
#
# An existing installation is tightened at start. Where the file system does not support modes, its own rules apply.


FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
OTHERS: Final = 0o077
OPEN_FILES: Final = 4_096
SQLITE_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")


def private_process() -> None:
    """Make every file that this process or its children create private. Each entry point calls it first."""
    os.umask(OTHERS)


def allow_open_files() -> None:
    """Raise the number of files and connections that this process may have open, as far as the system allows.

    Most systems begin with 1,024: too few for a thousand streams with requests beside them.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def private_folder(folder: Path) -> Path:
    """Make a folder private, and create it if needed. A folder that cannot be created fails where it is used."""
    with suppress(OSError):
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        _tighten(folder, FOLDER_MODE)
    return folder


def private_database(name: str) -> None:
    """Make an existing SQLite file private, and the files that SQLite keeps beside it."""
    path = Path(name)
    for suffix in SQLITE_SUFFIXES:
        with suppress(OSError):
            _tighten(path.with_name(path.name + suffix), FILE_MODE)


def make_secret(path: Path) -> None:
    """Create a file with a random secret unless it exists. Processes that start together agree on one value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    if not path.exists():
        draft.touch(mode=FILE_MODE)
        draft.write_text(secrets.token_urlsafe(48), encoding="utf-8")
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()


def _tighten(path: Path, mode: int) -> None:
    current = stat.S_IMODE(path.stat().st_mode)
    if current & ~mode:
        path.chmod(current & mode)


Value = TypeVar("Value")

MIN_SECRET_CHARS: Final = 32
MIN_TOKEN_CHARS: Final = 16
MIN_MASKED_CHARS: Final = 8
HOSTS: Final = "_HOSTS"  # of a secret: where it may be sent
SECRET_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
TRUE: Final = frozenset({"1", "true", "yes", "on"})
FLAGS: Final = {word: word in TRUE for word in (*TRUE, "0", "false", "no", "off", "")}


class Env:
    """A typed view of the process environment.

    `uses_data` is false in the process of a command that needs no data: then nothing is created.
    """

    uses_data = True

    def __init__(self, values: Mapping[str, str] = os.environ) -> None:
        self._values = values

    def data_folder(self, *, code: Path) -> DataFolder:
        """Decide where the data is. Raises if nothing may start like this; a command without data need not care."""
        found = data_folder(self._values, code=code)
        if found.fault and self.uses_data:
            raise ImproperlyConfigured(found.fault)
        return found

    def private_folder(self, folder: Path) -> Path:
        return private_folder(folder) if self.uses_data else folder

    # --- Values ---

    def _read(
        self,
        name: str,
        default: Value,
        parse: Callable[[str], Value],
        expected: str,
        is_valid: Callable[[Value], bool] = lambda value: True,
    ) -> Value:
        raw = self._values.get(name)
        if raw is None:
            return default
        with suppress(ValueError, ArithmeticError, LookupError):
            value = parse(raw)
            if is_valid(value):
                return value
        raise ImproperlyConfigured(f"{name}={raw!r} is not {expected}.")

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def listed(self, name: str, default: str = "") -> list[str]:
        """Split a variable at its commas."""
        return _split(self._values.get(name, default))

    def flag(self, name: str, *, default: bool) -> bool:
        return self._read(name, default, lambda raw: FLAGS[raw.strip().lower()], "a yes or no: use 1 or 0")

    def whole(self, name: str, default: int, *, least: int = 0) -> int:
        return self._read(name, default, int, f"a whole number, {least} or more", lambda value: value >= least)

    def seconds(self, name: str, default: float) -> float:
        return self._read(name, default, float, "a number of seconds above 0", lambda value: 0 < value < inf)

    def usd(self, name: str, default: str) -> Decimal:
        expected = "an amount in US dollars (0 or more, at most 6 decimal places)"
        return self._read(name, Decimal(default), Decimal, expected, _is_amount)

    def one_of(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        return self._read(name, default, str.upper, f"one of {', '.join(allowed)}", allowed.__contains__)

    def counts(self, name: str, allowed: tuple[str, ...]) -> dict[str, int]:
        """Read whole numbers by name, as in `A=1,B=20`."""
        expected = f"a list of whole numbers for some of {', '.join(allowed)}, as in {allowed[0]}=30"
        return self._read(name, {}, _counts, expected, lambda counts: _are_counts(counts, allowed))

    def mapping(self, name: str) -> dict[str, Any]:
        """Read a JSON object."""
        expected = 'a JSON object, such as {"max_steps": 20}'
        return self._read(name, {}, json.loads, expected, lambda value: isinstance(value, dict))

    def networks(self, name: str) -> list[str]:
        return self._read(name, [], _networks, "a list of networks, such as 10.1.0.0/16")

    def web_address(self, name: str, default: str) -> str:
        """Read the address of a site, without a slash at the end."""
        expected = "the address of a site, such as https://ops.example.org"
        return self._read(name, default, lambda raw: raw.rstrip("/"), expected, _is_site)

    def database(self, name: str, *, default: str) -> dict[str, Any]:
        return parse_database_url(name, self._values.get(name) or default)

    def certificates(self, name: str) -> str:
        """Return the path of a PEM file with certificates; "" if none is named."""
        file = self._values.get(name, "")
        if not file:
            return ""
        try:
            SSLContext(PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=file)
        except SSLError:  # before OSError, whose subclass it is
            raise ImproperlyConfigured(
                f"{name}: {file} holds no certificate that can be read. Name a PEM file, with a block "
                "-----BEGIN CERTIFICATE----- for each authority, or unset the variable."
            ) from None
        except OSError as error:
            raise ImproperlyConfigured(
                f"{name}: {file} cannot be read: {error.strerror}. Name a PEM file with the certificates of your "
                "authority that this user may read, or unset the variable."
            ) from None
        return str(Path(file).absolute())

    # --- Secrets ---

    def secret(self, name: str, *, kept_in: Path) -> str:
        """Return `NAME`, or the content of `NAME_FILE`, or a secret that is created once in the data folder."""
        value = self.optional_secret(name)
        if not value and not self.uses_data:
            return secrets.token_urlsafe(48)
        if not value:
            kept = _kept(name, kept_in)
            try:
                make_secret(kept)
            except OSError as error:
                raise ImproperlyConfigured(
                    f"The data folder {str(kept_in)!r} cannot be used: {error.strerror}. LQOPS_VAR_DIR names another."
                ) from error
            value = _read_file(name, kept)
        if len(value) < MIN_SECRET_CHARS:
            message = f"{name} has {len(value)} characters; a secret needs {MIN_SECRET_CHARS} or more."
            raise ImproperlyConfigured(message)
        return value

    def has_secret(self, name: str, *, kept_in: Path) -> bool:
        """True when the secret is set or was created earlier, or none is needed."""
        is_set = any(self._values.get(variable) for variable in (name, f"{name}_FILE"))
        return is_set or not self.uses_data or _kept(name, kept_in).exists()

    def optional_secret(self, name: str) -> str:
        """Return `NAME`, or the content of `NAME_FILE`, or an empty text."""
        if value := self._values.get(name):
            return value
        path = self._values.get(f"{name}_FILE")
        return _read_file(f"{name}_FILE", Path(path)) if path else ""

    def named_secrets(self, prefix: str, *, but: tuple[str, ...] = (), but_ending: str | None = None) -> dict[str, str]:
        """Return the secrets whose variables start with the prefix, by the rest of the name in lower case.

        A variable that ends with `but_ending` holds no secret: it says something about one.
        """
        holding = [name for name in self._values if but_ending is None or not name.endswith(but_ending)]
        found = {name.removeprefix(prefix).removesuffix("_FILE") for name in holding if name.startswith(prefix)}
        named = {name: self.optional_secret(f"{prefix}{name}") for name in sorted(found - {"", *but})}
        for name, value in named.items():
            if not SECRET_NAME.fullmatch(name):
                raise ImproperlyConfigured(f"{prefix}{name}: use capital letters, digits and _, at most 64 characters.")
            if value and len(value) < MIN_MASKED_CHARS:
                raise ImproperlyConfigured(
                    f"{prefix}{name} has {len(value)} characters; a secret of less than {MIN_MASKED_CHARS} "
                    "cannot be masked."
                )
        return {name.lower(): value for name, value in named.items() if value}

    def hosts_of_secrets(self, prefix: str, names: Iterable[str]) -> dict[str, list[str]]:
        """Return the hosts that secrets may be sent to, by the names of the secrets: `<prefix><NAME>_HOSTS`."""
        known = set(names)
        found: dict[str, list[str]] = {}
        for variable in sorted(self._values):
            if not (variable.startswith(prefix) and variable.endswith(HOSTS)):
                continue
            name = variable.removeprefix(prefix).removesuffix(HOSTS).lower()
            if name not in known:
                raise ImproperlyConfigured(
                    f"{variable} names hosts for a secret that is not set: set {prefix}{name.upper()} too. A secret "
                    f"itself cannot have a name that ends with {HOSTS}."
                )
            try:
                found[name] = [host_checked(host) for host in self.listed(variable)]
            except BadHost as error:
                raise ImproperlyConfigured(f"{variable}: {error}") from None
        return found


def masked_forms(value: str) -> list[str]:
    """Return a secret and its long words, such as the token of "Bearer …": each of them is masked."""
    return [value, *(part for part in value.split() if len(part) >= MIN_MASKED_CHARS)]


def parse_database_url(name: str, url: str) -> dict[str, Any]:
    """Read `sqlite:///file`, `sqlite:////absolute/file` or `postgresql://user:password@host:port/name?option=value`.

    Errors do not quote a PostgreSQL address: it may contain a password.
    """
    scheme = urlsplit(url).scheme
    if scheme not in {"sqlite", "postgres", "postgresql"}:
        raise ImproperlyConfigured(f"{name} starts with {scheme!r}: use sqlite:///… (embedded) or postgresql://….")
    if scheme == "sqlite":
        if not re.match(r"sqlite:///[^?]", url):
            raise ImproperlyConfigured(f"{name}={url!r} names no file: use sqlite:///var/lqops.sqlite3.")
    elif importlib.util.find_spec("psycopg") is None:
        raise ImproperlyConfigured(
            f"{name} names PostgreSQL: install its driver with .venv/bin/pip install -e '.[postgres]' in the "
            "folder of lqops."
        )
    try:
        database = dj_database_url.parse(url)
    except ValueError:
        raise ImproperlyConfigured(f"{name} is not a valid address: is the port a number from 1 to 65535?") from None
    if not database["NAME"]:
        raise ImproperlyConfigured(f"{name} names no database: use postgresql://user:password@host:5432/lqops.")
    return dict(database)


def _is_amount(value: Decimal) -> bool:
    return value.is_finite() and value >= 0 and value == round(value, 6)


def _is_site(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.scheme in {"http", "https"} and parts.hostname and not parts.query and not parts.fragment)


def _split(raw: str) -> list[str]:
    return [item.strip() for item in raw.split(",") if item.strip()]


def _counts(raw: str) -> dict[str, int]:
    pairs = [item.partition("=") for item in _split(raw)]
    return {name.strip().upper(): int(number) for name, _, number in pairs}


def _are_counts(counts: dict[str, int], allowed: tuple[str, ...]) -> bool:
    return counts.keys() <= set(allowed) and all(count >= 0 for count in counts.values())


def _networks(raw: str) -> list[str]:
    networks = _split(raw)
    for network in networks:
        ipaddress.ip_network(network)
    return networks


def _kept(variable: str, folder: Path) -> Path:
    return folder / variable.removeprefix("LQOPS_").lower()


def _read_file(name: str, path: Path) -> str:
    try:
        value = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ImproperlyConfigured(f"{name}: {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise ImproperlyConfigured(f"{name}: {path} is not text.") from None
    if not value:
        raise ImproperlyConfigured(f"{name}: {path} is empty.")
    return value
