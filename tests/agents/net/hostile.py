"""URLs of private addresses, in every spelling that some program accepts; and ordinary URLs for contrast."""

# ruff: noqa: RUF001 - look-alike characters are intended

from collections.abc import Iterator
from ipaddress import IPv4Address

PUBLIC = "93.184.216.34"
PUBLIC_V6 = "2606:2800:220:1:248:1893:25c8:1946"

INSIDE = (
    "127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "100.100.100.200", "0.0.0.0", "0.1.2.3", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.31.196.1",
    "192.52.193.1", "192.175.48.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "168.63.129.16", "224.0.0.1",
    "239.255.255.255", "240.0.0.1", "255.255.255.255",
)  # fmt: skip
INSIDE_V6 = (
    "::1", "::", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "febf::1", "fec0::1", "ff02::1", "ff0e::1",
    "100::1", "2001:db8::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:2::1", "2001:10::1", "3fff::1",
    "3ffe::1", "5f00::1", "4000::1", "2620:4f:8000::1", "64:ff9b:1::7f00:1", "2606:2800::5efe:7f00:1",
    "2606:2800::200:5efe:7f00:1", "0:0:0:0:0:0:0:1", "0000:0000:0000:0000:0000:0000:0000:0001", "::FFFF:7F00:1",
)  # fmt: skip
LOCAL_NAMES = (
    "localhost", "LOCALHOST", "LocalHost", "localhost.", "localhost.localdomain", "foo.localhost", "printer.local",
    "printer.local.", "api.internal", "metadata.google.internal", "Metadata.Google.Internal",
    "metadata.google.internal.", "metadata", "metadata.goog", "instance-data", "instance-data.ec2.internal",
    "intranet",
    "wiki.intranet", "nas.lan", "router.home", "dc.corp", "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local", "x.test", "x.invalid", "abc.onion", "box.home.arpa",
    "1.0.0.127.in-addr.arpa",
    "db.private", "db.localdomain", "redis", "postgres", "host.docker.internal", "consul.service.consul", "x.alt",
    "a",
)  # fmt: skip
SCHEMES = (
    "file:///etc/passwd", "file://public.example.com/x", "gopher://public.example.com:70/_",
    "ftp://public.example.com/",
    "ftps://public.example.com/", "sftp://public.example.com/", "data:text/plain,x", "javascript:alert(1)",
    "dict://public.example.com:2628/", "ldap://public.example.com/", "ldaps://public.example.com/",
    "jar:http://public.example.com!/", "tftp://public.example.com/", "ssh://public.example.com/",
    "telnet://public.example.com/", "ws://public.example.com/", "wss://public.example.com/", "unix:///run/x.sock",
    "http+unix://%2Frun%2Fx.sock/", "mailto:x@public.example.com", "netdoc:///etc/passwd", "php://filter/x",
    "phar://x", "expect://id", "blob:http://public.example.com/x", "view-source:http://public.example.com/",
    "httpx://public.example.com/", "s3://bucket/x", "about:blank", "urn:x:y", "chrome://settings",
    "smb://public.example.com/",
)  # fmt: skip
FORMS = (
    "", " ", "//127.0.0.1/", "//public.example.com/", "/path", "path", "?q", "#f", "http:", "http:/", "http://",
    "http:///",
    "http:/public.example.com/", "http:public.example.com", "http:///public.example.com/",
    "http:////public.example.com/",
    "http://?q", "http://#f", "http://:80/", "http://.", "http://./", "http://..", "http://.public.example.com/",
    "http://public..example.com/", "http://public.example.com./", "http://public.example.com../",
    "http://-a.example.com/",
    "http://a-.example.com/", "http://*.example.com/", "http://public,example.com/", "http://public.example.com;x/",
    "http://(public.example.com)/", "http://public.example.com|/", "http://public$.example.com/", "http://a.b.c_d/",
    "http://public.example.c/", f"http://{'a' * 64}.com/", f"http://{'a.' * 130}com/", "://public.example.com/",
    "1http://public.example.com/", "ht tp://public.example.com/", " http://public.example.com/",
    "http://public.example.com/ ", "\thttp://public.example.com/", "http://public.example.com/\n",
    "\x00http://public.example.com/", "http://public.example.com/a b", "http://public.example.com/a\tb",
    "http://public.example.com/a\r\nHost: x", "http://public.example.com/\x7f", "http://public.example.com/\x85",
    "http://public.example.com/\u2028", "http://public.example.com/\u3000", "http://public.example.com/\ud800",
    "http://pub\tlic.example.com/", "http://pub\nlic.example.com/", "http://pub\u200blic.example.com/",
    "http://pub\u00adlic.example.com/", "http://pub\u202elic.example.com/", "http://public.example.com\\.x.com/",
    "http:\\\\public.example.com\\", "http:\\/\\/public.example.com/", "http:/\\public.example.com/",
    "\\\\public.example.com\\x", f"http://public.example.com/{'a' * 8200}", f"http://public.example.com/{'ä' * 4100}",
    f"http://public.example.com/{'ä' * 3000}", "http://[", "http://]", "http://[]", "http://[/", "http://[::1",
    "http://::1/",
    "http://[::1]x/", "http://x[::1]/", "http://[[::1]]/", "http://[v1.a]/", "http://[1.1.1.1]/",
    "http://[public.example.com]/", "http://[2606:2800::1%25eth0]/", "http://[2606:2800::1%eth0]/",
    "http://[fe80::1%25lo]/",
    "http://[2606:2800::1]:/", "http://[2606:2800::1]:x/", "http://[2606:2800::1]80/", "http://2606:2800::1/",
)  # fmt: skip
PORTS = (
    "0", "00", "080", "65536", "99999", "100000", "-1", "+80", "80a", "a", "0x50", "８０", "8 0", "80:80", "", "1e3",
    "22", "23", "25", "53", "110", "135", "139", "143", "389", "445", "465", "587", "2049", "2375", "2379", "3306",
    "3389",
    "5432", "5672", "5900", "5984", "6000", "6379", "8500", "9042", "9092", "9200", "10250", "11211", "15672",
    "27017",
)  # fmt: skip
USERINFO = (
    "http://public.example.com@127.0.0.1/", "http://127.0.0.1@public.example.com/",
    "http://user:pass@public.example.com/",
    "http://user@public.example.com/", "http://@public.example.com/", "http://:@public.example.com/",
    "http://:p@public.example.com/",
    "http://a@b@public.example.com/", "http://public.example.com:80@127.0.0.1/",
    "http://public.example.com%40127.0.0.1/",
    "http://public.example.com%2F@127.0.0.1/", "http://127.0.0.1#@public.example.com/",
    "http://127.0.0.1?@public.example.com/",
    "http://127.0.0.1/@public.example.com", "http://public.example.com\\@127.0.0.1/",
    "http://127.0.0.1\\@public.example.com/",
    "http://127.0.0.1;@public.example.com/", "http://public.example.com＠127.0.0.1/",
    "http://127.0.0.1%23@public.example.com/",
    "http://127.0.0.1%00.public.example.com/", "http://127.0.0.1:80\\@public.example.com/",
    "http://127.0.0.1:80#@x.com/",
)  # fmt: skip
UNICODE = (
    "http://１２７.０.０.１/", "http://①②⑦.⓪.⓪.①/", "http://127。0。0。1/", "http://127．0．0．1/",
    "http://127｡0｡0｡1/",
    "http://127․0․0․1/", "http://𝟏𝟐𝟕.𝟎.𝟎.𝟏/", "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", "http://ｌocalhost/", "http://localhoſt/",
    "http://localhost。/", "http://localhost．x/", "http://public。example。com/", "http://public．example．com/",
    "http://public｡example.com/", "http://ｅxample.com/", "http://exam\u212aple.com/", "http://℡.com/",
    "http://ﬁx.com/",
    "http://[：：1]/", "http://169。254。169。254/", "http://metadata。google。internal/", "http://١٢٧.٠.٠.١/",
    "http://xn--x-83t.com/", "http://xn--orhc.com/", "http://xn--8g7c.com/", "http://xn--ab-g4t.com/",
    "http://xn--127-.com/", "http://xn--.com/", "http://xn--a.com/", "http://xn--99999999.com/",
    "http://xn--localhost-.com/",
    "http://ex\u0301\u0301ample\u2024com/", "http://☃.com/", "http://a\u0300.com./", "http://xn--a-ecp.ru%00/",
    "http://%6c%6f%63%61%6c%68%6f%73%74/", "http://%31%32%37.0.0.1/", "http://127.0.0.1%2f/",
    "http://public%2eexample.com/", "http://%E2%91%A0.com/", "http://public.example.com%/",
)  # fmt: skip


def spellings(dotted: str) -> Iterator[str]:
    """One IPv4 address as hosts of URLs."""
    address = IPv4Address(dotted)
    number = int(address)
    a, b, c, d = address.packed
    yield from (dotted, f"{dotted}.", f"{dotted}..")
    yield from (str(number), f"{number:#x}", f"{number:#X}", f"0{number:o}", f"0o{number:o}", str(number + 2**32))
    yield f"{a:#x}.{b:#x}.{c:#x}.{d:#x}"
    yield f"0{a:o}.0{b:o}.0{c:o}.0{d:o}"
    yield f"{a:03}.{b:03}.{c:03}.{d:04}"
    yield f"00000{a:o}.{b}.{c}.{d}"
    yield from (f"{a}.{b}.{c * 256 + d}", f"{a}.{b * 65536 + c * 256 + d}", f"{a:#x}.{number & 0xFFFFFF}")
    yield from (
        f"{a}.{b}.{c}.{d:#x}",
        f"{a}.{b}.{c}",
        f"{dotted}.5",
        f".{dotted}",
        f"{a}.{b}..{d}",
        f"{a + 256}.{b}.{c}.{d}",
    )
    high, low = number >> 16, number & 0xFFFF
    for prefix in ("::ffff:", "::", "::ffff:0:", "64:ff9b::", "64:ff9b:1::", "fe80::5efe:", "2606:2800::5efe:"):
        yield from (f"[{prefix}{dotted}]", f"[{prefix}{high:x}:{low:x}]")
    yield from (f"[2002:{high:x}:{low:x}::1]", f"[2001:0:{high:x}:{low:x}::]", f"[{dotted}]", f"[::{dotted}%25eth0]")


def hostile_urls() -> list[str]:
    """URLs that are refused although the resolver says that every name is public."""
    hosts = [host for dotted in INSIDE for host in spellings(dotted)]
    hosts += [f"[{text}]" for text in INSIDE_V6]
    hosts += LOCAL_NAMES
    urls = [f"{scheme}://{host}{end}" for host in hosts for scheme, end in (("http", "/"), ("HTTPS", ":8443/a?b#c"))]
    urls += [*SCHEMES, *FORMS, *USERINFO, *UNICODE]
    urls += [f"http://{host}:{port}/" for port in PORTS for host in ("public.example.com", PUBLIC, f"[{PUBLIC_V6}]")]
    return list(dict.fromkeys(urls))


def ordinary_urls() -> list[str]:
    hosts = [
        "example.com", "www.example.org", "EXAMPLE.com", "a.b.c.d.example.co.uk", "xn--mnchen-3ya.de", "münchen.de",
        "MÜNCHEN.de", "пример.рф", "例え.jp", "中国.中国", "مثال.com", "faß.de", "ελληνικά.gr", "xn--ls8h.la",
        "1.1.1.1",
        "8.8.8.8", "93.184.216.34", "172.15.0.1", "172.32.0.1", "100.63.0.1", "192.0.1.1", "223.255.255.255",
        "[2606:2800:220:1:248:1893:25c8:1946]", "[2A00:1450:4001:081B:0000:0000:0000:200E]", "[2620:fe::fe]",
        "my_bucket.s3.amazonaws.com", "r3---sn-abc.googlevideo.com", "127.0.0.1.example.com", "localhost.example.com",
        "internal.example.com", "123.example.com", "0x7f.example.com", "3com.com", "t.co", "public.example",
        "test.dev",
        f"{'a' * 63}.com", "corp.example", "home.example.com", "metadata.google.com", "xn--80ak6aa92e.com",
        "x.museum",
    ]  # fmt: skip
    tails = [
        "", "/", ":80/", ":443/", ":8080/", ":8443/x", ":3000/", ":8000/", ":5000/", ":9000/", ":65535/", "?q=1",
        "#top",
        "/a/b.html?x=1&y=2#z", "/%E2%82%AC?q=%20", "/a%2Fb/../c", "/path;v=1", "/straße/日本", "/?q=ü&r=[1]",
        "/a@b:c",
        "/user@host", "/?redirect=http://127.0.0.1/", "/#@127.0.0.1", "/~me/(x)'!*", "/100%", "/emoji/👩\u200d🔬",
        "//double",
        f"/?q={'x' * 7000}", "/{a}|<b>\"^`",
    ]  # fmt: skip
    return [f"https://{host}/" for host in hosts] + [f"http://example.com{tail}" for tail in tails]
