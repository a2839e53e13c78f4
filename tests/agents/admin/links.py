"""Walking the pages as one person: every page that they may view, and every kind of link on it."""

import re
from html import unescape
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

from django.contrib import admin
from django.template.response import SimpleTemplateResponse
from django.urls import Resolver404, resolve, reverse

import agents.admin  # noqa: F401 which registers the pages
from tests.agents.admin.rows import page, text_of

LINK = re.compile(r'href="(/[^"#]*)')
FILES = ("/static/", "/admin/logout/", "/favicon")
PLAIN = ("index", "paused", "chats", "charts", "health", "models", "ask", "search")


def pages_for(user):
    """Home and its like, every list, and the page of one row of each kind that the user may view."""
    yield from (reverse(f"admin:{name}") for name in PLAIN)
    for model in admin.site._registry:
        if not user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}"):
            continue
        yield page(model, "changelist")
        row = model._meta.default_manager.order_by("pk").first()
        if row is not None:
            yield page(model, "change", row.pk)


def links_of(answer):
    found = {unescape(link) for link in LINK.findall(text_of(answer))}
    return {link for link in found if not link.startswith(FILES) and not link.endswith("/bytes/")}  # rows without files


def kind_of(link):
    """Links that differ by the row alone are of one kind: its view, its action, and the names in its query."""
    address = urlsplit(link)
    try:
        match = resolve(address.path)
    except Resolver404:
        return link
    return match.view_name, match.kwargs.get("name"), frozenset(parse_qs(address.query))


def closed_links(client, addresses, rendered):
    """The kinds of links on these pages that do not open, each with a page that shows it.

    A page that is only linked is rendered for the first reader; for the others its status is enough.
    """
    seen = {}
    opened = set()
    for address in addresses:
        answer = client.get(address)
        assert answer.status_code == 200, address
        opened.add(kind_of(address))
        for link in links_of(answer):
            seen.setdefault(kind_of(link), (link, address))
    rendered |= opened
    return {
        link: place
        for kind, (link, place) in seen.items()
        if kind not in opened and not _opens(client, link, kind, rendered)
    }


def _opens(client, link, kind, rendered):
    answer = unrendered(client, link) if kind in rendered else client.get(link)
    rendered.add(kind)
    return answer.status_code in {200, 302}


def unrendered(client, address, query=None):
    """The response without its text."""
    with patch.object(SimpleTemplateResponse, "rendered_content", ""):
        return client.get(address, query)
