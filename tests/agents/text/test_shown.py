"""Text before a decision: nothing invisible, look-alike letters marked, and a warning for each."""

import pytest

from agents.text.shown import LABEL_CHARS, MOST_WARNINGS, shown

CYRILLIC_A = "\u0430"


def test_json_is_sorted_and_spelled_out():
    found = shown({"b": "ü\u202e", "a": [1, None, "x\n"], "k\u200b": True})
    assert found.text == (
        '{\n  "a": [\n    1,\n    null,\n    "x\\n"\n  ],\n  "b": "ü⟨U+202E⟩",\n  "k⟨U+200B⟩": true\n}'
    )
    assert found.warnings == (
        "There are invisible characters: U+202E RIGHT-TO-LEFT OVERRIDE.",
        "There are invisible characters: U+200B ZERO WIDTH SPACE.",
    )


@pytest.mark.parametrize(
    ("name", "text", "marked", "reads"),
    [
        ("text", f"{CYRILLIC_A}pple.com", f"{CYRILLIC_A}⟨U+0430⟩pple.com", "apple.com"),
        ("text", f"p{CYRILLIC_A}y", f"p{CYRILLIC_A}⟨U+0430⟩y", "pay"),
        ("text", "\uff50ay@x.org", "\uff50⟨U+FF50⟩ay@x.org", "pay@x.org"),
        ("text", "pay\u4e00pal.com", "pay\u4e00⟨U+4E00⟩pal.com", "pay-pal.com"),
        ("account", "my\u30fcbank", "my\u30fc⟨U+30FC⟩bank", "my-bank"),
        ("account", "k\u0131z", "k\u0131⟨U+0131⟩z", "kiz"),
        ("to", "\u0440\u0430\u0443", "\u0440⟨U+0440⟩\u0430⟨U+0430⟩\u0443⟨U+0443⟩", "pay"),
    ],
)
def test_look_alike_letters_of_hosts_addresses_and_names_are_marked(name, text, marked, reads):
    found = shown({name: text})
    assert f'"{marked}"' in found.text
    [warning] = found.warnings
    assert warning.startswith(f"{marked} reads like {reads}, but ")


@pytest.mark.parametrize(
    "text",
    [
        "Привет, как дела?",
        "Käthe in Zürich, naïve, k\u0131z\u0131l",
        "東京",
        "コーヒー.jp",
        "Ελλάδα",
        "plain ASCII, 1l O0",
        "köln.de",
    ],
)
def test_ordinary_text_is_left_alone(text):
    found = shown({"text": text})
    assert f'"{text}"' in found.text
    assert found.warnings == ()


def test_text_from_right_to_left_is_warned_of():
    assert shown(["\u05d0\u05d1"]).warnings == (
        "Some letters are read from right to left: they may stand on the screen in another order.",
    )


def test_encoded_host_is_decoded():
    assert shown(["http://xn--pple-43d.com"]).warnings == (f"xn--pple-43d is shown by browsers as {CYRILLIC_A}pple.",)
    assert "cannot be decoded" in shown(["xn--99999999999"]).warnings[0]


def test_very_long_encoded_name_is_not_decoded():
    longest = "xn--" + "a" * (LABEL_CHARS - 4)
    [within] = shown([longest]).warnings
    [beyond] = shown([longest + "a"]).warnings
    assert "too long" not in within
    assert beyond.endswith("is shown by browsers as nothing: it is too long for a name.")


def test_many_warnings_are_counted():
    words = [f"{CYRILLIC_A}{number}.com" for number in range(MOST_WARNINGS + 5)]
    found = shown(words)
    assert len(found.warnings) == MOST_WARNINGS + 1
    assert found.warnings[-1] == "And 5 more; each letter is marked in the text."
    assert found.text.count("⟨U+0430⟩") == len(words)


def test_many_kinds_of_invisible_characters_are_named_by_example():
    [warning] = shown(["\u200b\u200c\u200d\u2060"]).warnings
    assert warning.endswith("U+200D ZERO WIDTH JOINER and others.")


@pytest.mark.parametrize(
    ("text", "known", "name"),
    [
        ("https://paypaI.com/pay?x=1", "paypal.com", "paypai.com"),
        ("write to eve@rnicrosoft.com, please", "microsoft.com", "rnicrosoft.com"),
        ("https://login.g00gle.com/", "google.com", "g00gle.com"),
        ("cIoud.example.org", "cloud.example.org", "cioud.example.org"),
        ("vvhite.example", "white.example", "vvhite.example"),
        ("https://exarnple.co.uk", "mail.example.co.uk", "exarnple.co.uk"),
    ],
)
def test_host_that_reads_like_one_used_before_is_warned_of(text, known, name):
    [warning] = shown({"to": text}, [known]).warnings
    assert warning.endswith(f"but is another host: {name}.")
    assert " reads like " in warning
    assert shown({"to": text}).warnings == ()


def test_two_hosts_of_one_call_that_read_alike_are_warned_of():
    warnings = shown({"from": "a@paypal.com", "to": ["b@paypaI.com"]}).warnings
    assert [one.split(" ")[0] for one in warnings] == ["paypal.com", "paypaI.com"]


@pytest.mark.parametrize("text", ["https://PayPal.com/x", "www.paypal.com", "paypal.com.", "", 5, None, "no host"])
def test_same_host_in_another_form_is_no_other_host(text):
    assert shown({"to": text}, ["paypal.com", "example.org"]).warnings == ()
