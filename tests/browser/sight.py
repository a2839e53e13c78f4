"""Playwright's expectations for the tests of this folder; without Playwright a module that imports them is skipped."""

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install -e '.[browser]'")
expect = sync_api.expect
