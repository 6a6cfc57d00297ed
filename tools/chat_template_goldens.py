"""Writes crates/text/src/chat_template/goldens.json: small templates, and what jinja2 makes of them.

The environment is that of `transformers`. A result of null is an error. Needs the packages `jinja2` and
`transformers`: python tools/chat_template_goldens.py
"""

import json
from pathlib import Path

from transformers.utils import chat_template_utils

OUTPUT = Path(__file__).parent.parent / "crates/text/src/chat_template/goldens.json"

CONTEXT = {
    "n": 3,
    "neg": -7,
    "f": 2.5,
    "tiny": 1e-05,
    "big": 1e16,
    "s": "hello world",
    "empty": "",
    "u": "Ünïcödé Straße ǆ 你好 🙂",
    "lines": "one\ntwo\r\nthree\n\nfour",
    "padded": "  \t x y \n",
    "t": True,
    "nothing": None,
    "l": [3, 1, 2],
    "words": ["b", "A", "c"],
    "nested": [[1, [2.0, None]], {"k": "it's"}, "\"q\""],
    "d": {"b": 1, "a": {"x": [1, 2]}, "c": None},
    "records": [
        {"name": "x", "age": 3, "tags": ["p", "q"]},
        {"name": "Y", "age": 1, "tags": []},
        {"name": "z", "age": 2},
    ],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi\n"},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.0}}}]},
    ],
}

# By what they are about. An expression alone stands for {{ expression }}.
EXPRESSIONS = {
    "products": r"""
        "-" * 3
        3 * "-"
        "  " * (n - 1)
        (n + 1) * 2
        l[0] * 2
        2 * 3
        2 * 3 * 4
        2 * 1.5
        "ab" * 0
        "ab" * -1
        "ab" * true
        true * 3
        [0] * 3
        3 * [0, 1]
        (1, 2) * 2
        l * 2
        "a" * "b"
        "a" * 1.5
        [1] * "a"
        nothing * 2
        d * 2
        missing * 2
        -n * 2
        -(2 * 3)
        2 * -3
        ("a" * 2) * 2
        "a" ~ "b" * 2
        "=" * s | length
        ("=" * 5) | length
        "=" * (s | length)
        2 * 3 == 6
        10000000000 * 10000000000
        9223372036854775807 * 1
        9223372036854775807 * 2
        9223372036854775807 + 1
        n * n * n * n * n * n * n * n
        (n * f) | int
        [1, 2] * 2 + [3]
    """,
    "arithmetic": r"""
        7 // 2
        -7 // 2
        neg // 2
        7 % 3
        -7 % 3
        neg % 3
        7 % -3
        7.5 % 2
        -7.5 // 2
        7 / 2
        6 / 2
        1 / 3
        1 / 0
        1 // 0
        1 % 0
        1.0 / 0
        2 ** 3
        2 ** -1
        2 ** 0.5
        2.0 ** 3
        2 ** 3 ** 2
        -2 ** 2
        (-2) ** 2
        2 ** 100
        0 ** 0
        0 ** -1
        n - 5
        f - n
        1 - 1.0
        true + true
        true + 1
        true - false
        -true
        +n
        + "a"
        -"a"
        "a" - "b"
        "a" + 1
        1 + "a"
        "a" + nothing
        [1] + (2,)
        (1,) + (2,)
        l + [4]
        l + "a"
        d + d
        missing + "a"
        missing ~ "a"
        nothing ~ t ~ f ~ n
        1 ~ 2
        l ~ d
        1e-5 ~ ""
        n + f * 2 - 1 // 1
        10 - 2 - 3
        100 // 10 // 3
        1_000 + 1
        0x1f
        0b101
        0o17
        1e3
        1.5e-7
        12345678901234567890
        "%s" % n
        "%s" % "x"
        "%s and %s" % (n, s)
        "%s and %s" % (n,)
        "%s" % (n, s)
        "%d items" % n
        "%d" % 2.9
        "%d" % "x"
        "%5d|%-5d|%05d|%+d" % (1, 2, 3, 4)
        "%.2f" % f
        "%.3f|%8.2f" % (f, 1)
        "%e" % 12345.678
        "%g %g" % (0.00001, 1234567.0)
        "%x %X %o" % (255, 255, 8)
        "%r" % s
        "%r %s" % (l, nothing)
        "%s" % l
        "%s" % (l,)
        "%s" % d
        "%(b)s" % d
        "%(b)03d and %(c)s" % d
        "%(zz)s" % d
        "100%%" % ()
        "%c%c" % (65, "b")
        "%5s|%-5s|%.2s" % ("ab", "ab", "abc")
        "no" % ()
        "no" % n
        "%z" % n
        n % "a"
        n % l
        "%s" % missing
        "%s" % tiny
        "%s %s" % (big, t)
    """,
    "floats": r"""
        1e-5
        tiny
        1e16
        big
        1e15
        123456789012345680.0
        0.1 + 0.2
        1.0
        100.0
        1e22
        1.5e300
        1e-4
        0.0001234
        -tiny
        0.0
        -0.0
        f
        1e400
        -1e400
        1e400 - 1e400
        [tiny, big, 1.0]
        {"a": tiny}
        (tiny,)
        tiny | string
        tiny ~ big
        [tiny, big] | join(" ")
        tiny | tojson
        [big, 1e400] | tojson
        big | int
        f | int
        f | round
        2.567 | round(2)
        2.567 | round(1, "floor")
        2.5 | round | int
        3.5 | round
        -2.5 | round
        1234 | round(-2)
        5 | round
        2.5 | round(0, "ceil")
        f | abs
        tiny | abs
        neg | abs
        n | float
        "1.50" | float
        "1e3" | float
        "x" | float
        "x" | float(2.0)
        "" | float
        nothing | float
        "7" | int
        "7.9" | int
        " 42 " | int
        "x" | int
        "x" | int(-1)
        "x" | int(default=5)
        "0x1A" | int(0, 16)
        "0b101" | int(base=2)
        "1A" | int(0, 16)
        "" | int
        nothing | int
        nothing | int(9)
        missing | int
        true | int
        l | int
        "1e3" | int
        "-3" | int
        "1_000" | int
        n is float
        f is float
        f is integer
        n / 3 is float
        1.0 == 1
        {1.0: "a"}[1]
    """,
    "texts": r"""
        s.upper()
        u.upper()
        u.lower()
        u.casefold()
        u.swapcase()
        u.title()
        u.capitalize()
        s.title()
        "they're bill's friends from the UK".title()
        "they're" | title
        "foo-bar (baz) <x> {y} [z] 3rd" | title
        "foo-bar (baz) 3rd".title()
        "hELLO" | capitalize
        s.capitalize()
        s.split()
        s.split(" ")
        s.split("o")
        s.split("o", 1)
        s.split(maxsplit=1)
        s.split(sep="o")
        s.split("")
        s.split(none, 1)
        padded.split()
        padded.split(" ")
        "a\x1cb".split()
        "a\u2028b c".split()
        "a\u00a0b\u200bc".split()
        "".split()
        "".split(",")
        " a  b  c ".split(none, 1)
        s.rsplit("o", 1)
        s.rsplit("o")
        " a  b  c ".rsplit(none, 1)
        s.rsplit()
        s.rsplit(maxsplit=1)
        s.partition(" ")
        s.partition("x")
        s.rpartition("o")
        s.rpartition("x")
        s.partition("")
        lines.splitlines()
        lines.splitlines(true)
        lines.splitlines(keepends=true)
        "a\u2028b\x0bc\x1cd\x85e\rf".splitlines()
        "".splitlines()
        "\n".splitlines()
        "a\n\n".splitlines()
        s.startswith("hello")
        s.startswith("b", 2)
        s.startswith("world", 6)
        s.startswith("world", -5)
        s.startswith("l", 2, 4)
        s.startswith("", 99)
        s.startswith(("x", "h"))
        s.startswith([])
        s.startswith(1)
        s.endswith("world")
        s.endswith("wor", 0, 9)
        s.endswith(("x", "d"))
        s.find("o")
        s.find("o", 5)
        s.find("o", 5, 6)
        s.find("zz")
        u.find("你")
        s.rfind("o")
        s.rfind("o", 0, 5)
        s.index("o")
        s.index("zz")
        s.rindex("o")
        s.rindex("zz")
        s.count("o")
        s.count("l", 4)
        s.count("")
        u.count("")
        s.replace("o", "0")
        s.replace("o", "0", 1)
        s.replace("o", "0", 0)
        s.replace("", "-")
        s.replace("", "-", 2)
        s.strip("hd")
        padded.strip()
        padded.lstrip()
        padded.rstrip()
        "\x1c\x1f a \u2028".strip()
        "\u200b a".strip()
        padded.strip(none)
        "xxaxx".lstrip("x")
        "xxaxx".rstrip("x")
        "xyaxy".strip("")
        "5".zfill(3)
        "-5".zfill(4)
        "+5".zfill(2)
        "abc".zfill(2)
        "".zfill(2)
        "ab".center(5)
        "ab".center(6)
        "abc".center(6, "*")
        "abc".center(2)
        "ab".center(5, "**")
        "ab".ljust(5, ".")
        "ab".rjust(5, ".")
        "ab".ljust(5) ~ "|"
        u.rjust(30, "é")
        "a\tbc\td".expandtabs()
        "a\tbc\td".expandtabs(4)
        "a\tb".expandtabs(0)
        s.removeprefix("hello ")
        s.removeprefix("x")
        s.removesuffix("world")
        s.removesuffix("x")
        s.removesuffix("")
        ", ".join(words)
        ", ".join(d)
        "-".join("abc")
        ", ".join([])
        ", ".join(l)
        ", ".join(["a", none])
        ", ".join(words | map("upper"))
        "{} and {}".format(n, s)
        "{0}{1}{0}".format(1, 2)
        "{a}".format(a=n)
        "{:>5}|{:<5}|{:^5}|".format("a", "b", "c")
        "{:05.1f}|{:,}|{:x}".format(f, 1234567, 255)
        "{0[b]}".format(d)
        "{}".format(nothing)
        "{!r}".format(s)
        "{}".format(l)
        "{}".format(tiny)
        "{".format(1)
        "{}".format()
        "{{}}".format()
        "abc".isalpha()
        "ab1".isalpha()
        "".isalpha()
        "123".isdigit()
        "²".isdigit()
        "½".isnumeric()
        "½".isdigit()
        "12".isdecimal()
        "²".isdecimal()
        "ab1".isalnum()
        "abc".islower()
        "aBc".islower()
        "123".islower()
        "ABC".isupper()
        " \n".isspace()
        "\x1c".isspace()
        "".isspace()
        "Hello World".istitle()
        "Hello world".istitle()
        "abc".isascii()
        u.isascii()
        "abc".isidentifier()
        "1abc".isidentifier()
        "a b".isprintable()
        "a\nb".isprintable()
        "abc".encode()
        "abc".nope()
        "abc".upper(1)
        "abc".__class__
        "abc".__class__.__mro__
        s[0]
        s[-1]
        s[99]
        u[9]
        s[0] ~ s[-1]
        s[:5]
        s[-5:]
        s[::-1]
        s[::2]
        s[1:-1:3]
        s[5:2]
        s[-99:99]
        u[12:16]
        s[5:2:-1]
        s[:]
        "" [0:1]
        s["a"]
        s | upper
        s | lower
        s | trim
        padded | trim
        padded | trim(" ")
        "xxaxx" | trim("x")
        "\x1c a \u2028" | trim
        nothing | trim
        s | replace("o", "0")
        s | replace("o", "0", 1)
        s | length
        u | length
        s | first
        s | last
        s | list
        s | reverse
        s | reverse | join
        s | string
        s | safe
        "<a href='x'>&\"</a>" | escape
        "<b>" | e
        "<b>" | escape | string
        "<b>" | forceescape
        s | wordcount
        "a-b c_d, é1 ..." | wordcount
        s | center(21)
        s | center
        "ab" | center(5)
        s | truncate(5)
        s | truncate(5, true)
        s | truncate(8, false, "!")
        s | truncate(5, leeway=0)
        s | truncate(8, true, "..", 0)
        s | truncate(8, end="", leeway=0)
        s | truncate
        s | truncate(2)
        (s ~ " ") * 40 | truncate(20)
        ((s ~ " ") * 40) | truncate(20)
        ((s ~ " ") * 40) | truncate
        s | indent
        lines | indent
        lines | indent(2, true)
        lines | indent(2, first=true, blank=true)
        lines | indent(width=1, blank=true)
        lines | indent("> ")
        lines | indent("> ", true, true)
        s | wordwrap(5)
        "the quick brown fox jumped" | wordwrap(10)
        "the quick-brown antidisestablishment" | wordwrap(8)
        "the quick-brown antidisestablishment" | wordwrap(8, false)
        "the quick-brown fox" | wordwrap(8, true, "|", false)
        "a b\n\nc d e f" | wordwrap(3)
        "a  b   c" | wordwrap(3)
        "" | wordwrap(3)
        s | wordwrap(5, wrapstring="/")
        s | urlencode
        "a b&c/d?é=~-_." | urlencode
        d | urlencode
        [["a b", 1], ["c", "d/e"]] | urlencode
        n | urlencode
        "<p>a <b>b</b> &amp; c\n d</p>" | striptags
        "<!-- x > y -->a &lt; b &nbsp;c" | striptags
        "a < b > c" | striptags
        {"class": "x y", "id": none, "n": 3, "q": "<\"&"} | xmlattr
        {} | xmlattr
        {"a": 1} | xmlattr(false)
        {"a b": 1} | xmlattr
        0 | filesizeformat
        1 | filesizeformat
        100 | filesizeformat
        1000 | filesizeformat
        1500000 | filesizeformat
        1023 | filesizeformat(true)
        1048576 | filesizeformat(true)
        "1000" | filesizeformat
        -5 | filesizeformat
        1e27 | filesizeformat
        "%s-%s" | format(1, 2)
        "%s" | format(l)
        "%(a)s" | format(a=n)
        "%d" | format(f)
        "%r" | format(s)
        s | pprint
        d | pprint
        n | string | length
        "http://a.b/c x" | urlize
        n | upper
        nothing | upper
        t | lower
        l | upper
        missing | upper
        n | replace("3", "4")
        n | length
        nothing | length
        missing | length
        "a" "b"
        'a\'b\n\t\\'
        "\x41\u00e9\U0001F642"
        "\q"
        "\
"
        "it's"
        ["it's", 'say "x"', "both ' and \"", "\n\t\\", "é\u200b\x7f\x00"]
    """,
    "containers": r"""
        l
        nested
        d
        d.a
        d["a"]["x"]
        d.a.x[1]
        d.missing
        d.missing.x
        d["missing"]
        d.items
        d.items()
        d.items() | list
        d.keys()
        d.keys() | list
        d.values() | list
        d.get("b")
        d.get("z")
        d.get("z", 5)
        d.get("z", default=5)
        d.copy()
        d.pop("b")
        d.update({"x": 1})
        d.setdefault("q", 1)
        d.clear()
        {"a": 1}.get("a")
        {"get": 1}.get("get")
        {"items": 1}.items
        {"items": 1}["items"]
        d | length
        d | list
        d | first
        d | items | list
        d | dictsort
        d | dictsort(true)
        {"B": 1, "a": 2} | dictsort
        {"B": 1, "a": 2} | dictsort(true)
        {"B": 1, "a": 0} | dictsort(false, "value")
        {"B": 1, "a": 0} | dictsort(by="value", reverse=true)
        d | tojson
        d | tojson(indent=2)
        nested | tojson
        u | tojson
        (1, 2) | tojson
        {1: 2, none: 3, true: 4, 1.5: 5} | tojson
        missing | tojson
        range(3) | tojson
        range(3) | list | tojson
        d | string
        d == {"b": 1, "a": {"x": [1, 2]}, "c": none}
        {} == {}
        "b" in d
        1 in d
        1 in l
        "A" in words
        "lo w" in s
        "" in s
        1 in s
        "x" not in s
        1 in missing
        missing in l
        none in nested[0][1]
        l[0]
        l[-1]
        l[9]
        l["a"]
        l.0
        l[1:]
        l[::-1]
        l[:-1]
        l[-2:]
        l[5:]
        l[::2]
        (1, 2, 3)[1:]
        l | first
        l | last
        [] | first
        [] | last
        l | min
        l | max
        [] | min
        [] | max
        words | min
        words | min(case_sensitive=true)
        records | max(attribute="age")
        l | sum
        l | sum(start=10)
        records | sum(attribute="age")
        [] | sum
        [0.1, 0.2, 0.3] | sum
        words | sum
        l | sort
        l | sort(reverse=true)
        words | sort
        words | sort(case_sensitive=true)
        words | sort(true, true)
        records | sort(attribute="age") | map(attribute="name") | list
        records | sort(attribute="name") | map(attribute="name") | join
        [1, "a"] | sort
        l | reverse
        l | reverse | list
        l | join
        l | join(", ")
        l | join(d=", ")
        records | join(", ", attribute="name")
        nested | join("|")
        s | join("-")
        words | unique | list
        ["a", "A", "b", "a"] | unique | list
        ["a", "A", "b", "a"] | unique(true) | list
        records | unique(attribute="name") | list | length
        records | map(attribute="name") | list
        records | map(attribute="tags.0") | list
        records | map(attribute="tags", default="-") | list
        records | map(attribute="nope") | list
        records | map("length") | list
        words | map("upper") | list
        words | map("replace", "b", "x") | list
        words | map("nope") | list
        words | map("upper")
        l | select
        l | select | list
        l | select("odd") | list
        l | select("greaterthan", 1) | list
        l | select("gt", 1) | list
        l | reject("odd") | list
        [0, 1, "", none, "a"] | select | list
        [0, 1, "", none, "a"] | reject | list
        [0, 1, none, "a"] | select("string") | list
        records | selectattr("tags") | map(attribute="name") | list
        records | selectattr("tags", "defined") | map(attribute="name") | list
        records | selectattr("age", "gt", 1) | map(attribute="name") | list
        records | selectattr("age", "equalto", 1) | list | length
        records | selectattr("age", "==", 1) | list | length
        records | selectattr("name", "in", ["x", "z"]) | list | length
        records | rejectattr("age", "eq", 1) | map(attribute="name") | list
        records | rejectattr("tags", "undefined") | list | length
        records | groupby("age") | map("first") | list
        records | groupby("age") | map(attribute="grouper") | list
        records | groupby("tags", default="-") | length
        l | batch(2) | list
        l | batch(2, "-") | list
        l | slice(2) | list
        l | slice(2, "-") | list
        range(7) | slice(3) | list
        range(7) | batch(3) | list
        l | list
        l | count
        l | string
        d | attr("b")
        nothing | default("x")
        nothing | default("x", true)
        missing | default("x")
        missing | d("x")
        missing | default
        empty | default("x")
        empty | default("x", true)
        empty | default("y", boolean=true)
        empty | default(default_value="z", boolean=true)
        0 | default(7, true)
        d.a.y | default("q")
        d.zz.y | default("q")
        range(3)
        range(1, 10, 3)
        range(1, 4)
        range(3) | list
        range(1, 10, 3) | list
        range(5, 0, -2) | list
        range(0)  | list
        range(3)[1]
        range(3)[-1]
        range(10)[2:5] | list
        range(3) | length
        2 in range(3)
        range(3) == range(3)
        range("a")
        range(3, 1, 0)
        range(100000) | length
        range(100001) | length
        range(3) | sum
        range(3) | reverse | list
        range(3) | join("-")
        dict(a=1, b=2)
        dict({"x": 1}, y=2)
        dict([("a", 1)])
        dict(d)
        namespace(a=1).a
        namespace({"a": 1}).a
        (1,)
        ()
        (1, "a", none)
        [1, 2,]
        {"a": 1,}
        {1: 2}
        {"a": [1, {"b": ()}]}
        [true, false, none]
        [True, False, None]
        [missing]
        true
        none
        nothing
        missing
        l.index(1)
        l.index(9)
        l.count(1)
        (1, 2, 1).count(1)
        (1, 2, 1).index(2)
        l.copy()
        l.append(4)
        l.pop()
        l.sort()
        l.extend([1])
        l.reverse()
        [1, [2, 3]] == [1, [2, 3]]
        [1] == (1,)
        [1, 2] < [1, 3]
        (1, 2) < (1, 3)
        zip([1], [2])
        d.__class__
        d.__init__
        l.__len__()
        nested[1].k
        nested[1]["k"]
        nested[0][1][0]
        messages[0].role
        messages[-1].content is none
        messages[-1].tool_calls[0].function.arguments | tojson
        messages | map(attribute="role") | join(",")
        messages[1:] | length
        messages | selectattr("role", "equalto", "user") | list | first
        (messages | selectattr("role", "equalto", "user") | first).content
        messages | last == messages[-1]
        messages | length - 1
    """,
    "tests": r"""
        s is sequence
        d is sequence
        l is sequence
        n is sequence
        nothing is sequence
        missing is sequence
        range(3) is sequence
        (1,) is sequence
        l | map("string") is sequence
        namespace() is sequence
        s is iterable
        d is iterable
        n is iterable
        nothing is iterable
        missing is iterable
        l | map("string") is iterable
        s is mapping
        d is mapping
        namespace() is mapping
        missing is mapping
        s is string
        n is string
        n is number
        t is number
        f is number
        nothing is number
        t is integer
        n is integer
        t is boolean
        n is boolean
        t is true
        n is true
        1 is true
        false is false
        0 is false
        nothing is none
        missing is none
        missing is defined
        n is defined
        d.zz is defined
        d.zz.y is defined
        missing is undefined
        n is odd
        n is even
        n is divisibleby 3
        n is divisibleby(2)
        n is eq 3
        n is equalto 3
        n is ne 3
        n is lt 4
        n is lessthan 4
        n is le 3
        n is gt 3
        n is greaterthan 2
        n is ge 3
        n is in [1, 3]
        "a" is in "abc"
        n is not in [1]
        n is sameas 3
        nothing is sameas none
        t is sameas true
        1 is sameas true
        "abc" is lower
        "Abc" is lower
        "ABC" is upper
        "123" is upper
        range is callable
        n is callable
        missing is callable
        s.upper is callable
        joiner is callable
        "upper" is filter
        "nope" is filter
        "odd" is test
        "nope" is test
        s is escaped
        (s | safe) is escaped
        n is nope
        n is not none
        not n is none
        not missing
        n is defined and n > 2
        n is not defined or n
        missing and 1
        missing or 1
        s and empty
        empty or nothing or "x"
        not empty
        1 == true
        0 == false
        "1" == 1
        1 == 1.0
        nothing == missing
        missing == missing
        nothing == none
        s == "hello world"
        s != "x"
        1 < 2 < 3
        1 < 3 < 2
        3 > 2 > 1
        1 < n <= 3
        1 == 1 != 2
        "a" < "b"
        "a" < "B"
        "a" < 1
        nothing < 1
        missing < 1
        n > "1"
        l < l
        true < 2
        1 if t else 2
        1 if not t else 2
        1 if false
        (1 if false) is defined
        "a" if n > 5 else "b" if n > 2 else "c"
        n if n is string else n ~ "!"
        missing()
        n()
        missing.x
        missing["x"]
        missing[0]
        nothing.x
        nothing["x"]
        n.x
        n[0]
        s.x
        l.x
        missing | list
        missing | join
        missing | first
        missing | string
        missing | trim
        missing | items | list
        nothing | list
        nothing | join
        nothing | items
        nothing | string
        nothing | tojson
        n | list
        n | items
        n | nope
        nope()
        raise_exception("no")
        cycler("a", "b").next()
        cycler()
        joiner()()
        lipsum is callable
        self is defined
        loop is defined
        varargs is defined
    """,
    "nothing to go through": r"""
        nothing | map("upper") | list
        missing | map("upper") | list
        empty | map("upper") | list
        0 | map("upper") | list
        false | map("upper") | list
        0.0 | map("upper") | list
        [] | map("upper") | list
        {} | map("upper") | list
        nothing | map(attribute="x") | list
        missing | map(attribute="x") | list
        empty | map(attribute="x") | list
        0 | map(attribute="x") | list
        false | map(attribute="x") | list
        0.0 | map(attribute="x") | list
        [] | map(attribute="x") | list
        {} | map(attribute="x") | list
        nothing | select | list
        missing | select | list
        empty | select | list
        0 | select | list
        false | select | list
        0.0 | select | list
        [] | select | list
        {} | select | list
        nothing | select("odd") | list
        missing | select("odd") | list
        empty | select("odd") | list
        0 | select("odd") | list
        false | select("odd") | list
        0.0 | select("odd") | list
        [] | select("odd") | list
        {} | select("odd") | list
        nothing | reject("odd") | list
        missing | reject("odd") | list
        empty | reject("odd") | list
        0 | reject("odd") | list
        false | reject("odd") | list
        0.0 | reject("odd") | list
        [] | reject("odd") | list
        {} | reject("odd") | list
        nothing | selectattr("x") | list
        missing | selectattr("x") | list
        empty | selectattr("x") | list
        0 | selectattr("x") | list
        false | selectattr("x") | list
        0.0 | selectattr("x") | list
        [] | selectattr("x") | list
        {} | selectattr("x") | list
        nothing | rejectattr("x", "eq", 1) | list
        missing | rejectattr("x", "eq", 1) | list
        empty | rejectattr("x", "eq", 1) | list
        0 | rejectattr("x", "eq", 1) | list
        false | rejectattr("x", "eq", 1) | list
        0.0 | rejectattr("x", "eq", 1) | list
        [] | rejectattr("x", "eq", 1) | list
        {} | rejectattr("x", "eq", 1) | list
        messages[2].content | selectattr("type", "equalto", "image") | list | length
        1 | select | list
        true | map("upper") | list
        nothing | list
        0 | join
        nothing | select | first
        nothing | map("upper") | join(",")
    """,
}

TEMPLATES = {
    "white space": [
        "a\nb\n", "a\nb\n\n", "\n", "", "\n\n", "a\r\nb\r\n", "a\rb\r", "\r\n",
        "{{ 1 }}\r\n{{ 2 }}", "{{ 1 }}\r\n", "{% if 1 %}\r\nx\r\n{% endif %}\r\ny", "{{ '\r\n' | length }}",
        "{{ 'a\r\nb' }}", "{# c\r\nd #}\r\nx", "{% set x = 'a\rb' %}{{ x }}", "a\\r\\n", "{{ 'a\\r\\nb' }}",
        "{{ s }}\n", "{{ s }}\n\n", "{% if t %}\nx\n{% endif %}\n", "  {% if t %}  \n  x  \n  {% endif %}  \n y",
        "  {%- if t -%}  \n  x  \n  {%- endif -%}  \n y", "a {%+ if t %} x {%+ endif %} b",
        "  {%+ if t +%}\n  x\n  {%+ endif +%}\n y", "a  {{- ' b ' -}}  c", "a\n  {{ 'b' }}\n  c", "a\n\n  {{- 'b' }}\n c",
        "a\n  {# c #}\nb", "a\n  {#- c -#}\nb", "a {# c #} b", "{# c #}\nb", "{# a\nb #}x", "{#- c #} x", "x {# c -#} y",
        "{% raw %}{{ x }}{% endraw %}", "{% raw %}\n {% a %}\n{% endraw %}\nx", "a {%- raw -%} {{ b }} {%- endraw -%} c",
        "\t{% if t %}\tx\t{% endif %}\t", "x{% if t %}\n\ny{% endif %}", "x \n {% if t %} y {% endif %} \n z",
        "{% set x = 1 %}\n{{ x }}", "{% set x = 1 -%}\n  {{ x }}", "{% set x = 1 %}  \n{{ x }}",
        "\u00a0{%- if t -%}\u00a0x{% endif %}", "\u2028{%- if t -%}\u2028x{% endif %}", "a\x0b{%- if t %}\x0bb{% endif %}",
        "a\x0c{{- 'b' }}", "a\x1c{{- 'b' -}}\x1c", "a\x85{{- 'b' -}}\x85c", "\u200b{{- 'b' -}}\u200b", "\u3000{{- 'b' -}}\u3000",
        "\ufeff{{ 1 }}", "{{1}}", "{{-1}}", "{{- 1}}", "{{+1}}", "{{ 1 -}}", "{{ - 1 }}", "{%if t%}x{%endif%}", "{% if t%}\nx{%endif -%}\n y",
        "{{\n1\n}}", "{%\nif t\n%}x{%\nendif\n%}", "a{{ '' }}\nb", "{{ '{{' }}", "{{ '}}' }}", "{{ '%}' }}", "}} {", "{ {", "%}", "#}",
        "{% for i in l %}\n{{ i }}\n{% endfor %}\n", "{% for i in l -%}\n{{ i }}\n{%- endfor %}\n",
        "{% for i in l %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}",
        "  {% for i in l %}\n  - {{ i }}\n  {% endfor %}\n  end", "{% if t %}  {% endif %}\n\n{% if t %}a{% endif %}",
        "a\n{% if t -%}\n\n\n  b {%- endif %}\n", "{{ s -}}\n\n\n{{- s }}", "{%- set x = 1 -%}\n\n{{ x }}", "\n\n{%- if t %}a{% endif %}",
        "{{ 1 }}  \n  {% if t %}a{% endif %}", "{{ 1 }}  {% if t %}a{% endif %}", "你好\n  {% if t %}\n🙂{% endif %}\n",
        "{% if t %}{{ 'x' }}\n{% endif %}y\n", "line # no comment\n## x", "{% generation %}\nx\n{% endgeneration %}\ny",
        " {%- generation -%} x {%- endgeneration -%} y",
    ],
    "loops": [
        "{% for i in l %}{{ i }}{% else %}none{% endfor %}", "{% for i in [] %}{{ i }}{% else %}none{% endfor %}",
        "{% for i in missing %}{{ i }}{% else %}none{% endfor %}", "{% for i in nothing %}{{ i }}{% endfor %}",
        "{% for i in n %}{{ i }}{% endfor %}", "{% for c in s %}{{ c }}.{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
        "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}",
        "{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}", "{% for a, b in [[1, 2], [3, 4]] %}{{ a }}{{ b }};{% endfor %}",
        "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}", "{% for a, b in ['xy'] %}{{ a }}{{ b }}{% endfor %}",
        "{% for (a, b), c in [[[1, 2], 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for i in l if i > 1 %}{{ loop.index }}{{ i }};{% endfor %}",
        "{% for i in l if i > 9 %}{{ i }}{% else %}none{% endfor %}",
        "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
        "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}",
        "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }};{% endfor %}",
        "{% for i in [1, 1, 2] %}{{ loop.changed(i) }};{% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
        "{% for i in l %}{{ loop.depth }}{{ loop.depth0 }}{% for j in l %}{{ loop.depth }}{% endfor %}{% endfor %}",
        "{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
        "{% for i in l %}{% set outer = loop %}{% for j in l %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
        "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
        "{% for i in l %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ j }}{% endfor %};{% endfor %}",
        "{% for i in l %}{% break %}{% else %}none{% endfor %}", "{% for i in l %}{% continue %}{% else %}none{% endfor %}",
        "{% for x in nested recursive %}{% if x is iterable and x is not string and x is not mapping %}[{{ loop(x) }}]{% else %}{{ x }}{% endif %}{% endfor %}",
        "{% set x = 0 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
        "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace() %}{% set ns.y = 'a' %}{{ ns.y }}{{ ns.z }}{{ ns.z is defined }}", "{% set ns = namespace(a=[]) %}{% for i in l %}{% set ns.a = ns.a + [i] %}{% endfor %}{{ ns.a }}",
        "{% set d.x = 1 %}", "{% set l[0] = 1 %}", "{% for i in l %}{{ i }}{% endfor %}{{ i is defined }}", "{% for l in l %}{{ l }}{% endfor %}{{ l }}",
        "{% for i in l | sort | reverse %}{{ i }}{% endfor %}", "{% for i in l[::-1] %}{{ i }}{% endfor %}", "{% for i in l + [4] %}{{ i }}{% endfor %}",
        "{% for m in messages %}{{ m.role }}: {{ m['content'] }}{% if not loop.last %}\n{% endif %}{% endfor %}",
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% elif m.tool_calls %}{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}{% endif %}{% endfor %}",
        "{% for m in messages if m.role != 'system' %}{{ loop.index0 % 2 }}{{ m.role }}{% endfor %}", "{{ loop }}", "{% for i in l %}{{ loop is defined }}{% endfor %}",
        "{% for i in range(n) %}{{ '-' * i }}{{ i }}\n{% endfor %}", "{% for _ in range(3) %}x{% endfor %}", "{% for i in (1, 2) %}{{ i }}{% endfor %}",
        "{% for i in 1, 2 %}{{ i }}{% endfor %}", "{% for i in l %}{% if loop.first %}{{ loop.index }}{% elif loop.last %}L{% else %}M{% endif %}{% endfor %}",
        "{% for g in records | groupby('age') %}{{ g.grouper }}{{ g.list | length }}{{ g[0] }};{% endfor %}",
        "{% for age, items in records | groupby('age') %}{{ age }}{{ items | length }};{% endfor %}", "{% for row in l | batch(2, '-') %}{{ row | join(',') }};{% endfor %}",
        "{% set c = cycler('a', 'b') %}{% for i in l %}{{ c.next() }}{% endfor %}{{ c.current }}{% set _ = c.reset() %}{{ c.next() }}",
        "{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}", "{% set j = joiner() %}{{ j() }}a{{ j() }}b",
        "{% for k in d.keys() %}{{ k }}{% endfor %}{% for v in d.values() %}{{ v }}{% endfor %}", "{% for i in l %}{% include 'x' %}{% endfor %}",
        "{% for c in u %}{{ c }}|{% endfor %}", "{% for i in namespace(a=1) %}{{ i }}{% endfor %}", "{% break %}", "{% for i in l %}", "{% endfor %}",
    ],
    "scopes": [
        "{% set x = 1 %}{{ x }}", "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set (x, y) = (1, 2) %}{{ x }}{{ y }}", "{% set x = 1, 2 %}{{ x }}", "{% set x, y = [1] %}",
        "{% if t %}{% set x = 1 %}{% endif %}{{ x }}", "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}",
        "{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x | length }}", "{% set x | upper %}ab{% endset %}{{ x }}", "{% set x | replace('a', 'b') | upper %}ab{% endset %}{{ x }}",
        "{% with x = 1, y = 2 %}{{ x }}{{ y }}{% endwith %}{{ x is defined }}", "{% with %}{% set x = 1 %}{{ x }}{% endwith %}{{ x }}", "{% set x = 5 %}{% with x = 1, y = x %}{{ x }}{{ y }}{% endwith %}{{ x }}",
        "{% filter upper %}ab{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aa{% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}",
        "{% macro m(a, b=2) %}[{{ a }}|{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}", "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
        "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{% macro m() %}{{ n }}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}",
        "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(a, b=a ~ 'x') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, none) }}",
        "{% macro m() %}{{ varargs }}{% endmacro %}{{ m() }}{{ m(1, 'a') }}", "{% macro m(a) %}{{ a }}{{ varargs | join('-') }}{% endmacro %}{{ m(1, 2, 3) }}",
        "{% macro m() %}{{ kwargs }}{% endmacro %}{{ m() }}{{ m(x=1, y='a') }}", "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }};{{ m(1, 2, 3, c=4) }};{{ m(b=3, a=1, z=2) }}",
        "{% macro m(a) %}{{ kwargs }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ varargs }}{% endmacro %}{{ m(z=2) }}", "{% macro m() %}{% for a in varargs %}{{ a }};{% endfor %}{{ kwargs.get('k', '-') }}{% endmacro %}{{ m(1, 2, k=3) }}{{ m() }}",
        "{% macro m() %}{{ varargs }}{{ caller() }}{% endmacro %}{% call m(1, 2) %}body{% endcall %}", "{% macro m(a) %}<{{ a }}>{{ caller() }}</{{ a }}>{% endmacro %}{% call m('b') %}body{{ n }}{% endcall %}",
        "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(x, y=5) m() %}{{ x }}{{ y }}{% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro m() %}{% endmacro %}{% call m() %}x{% endcall %}",
        "{% macro m(x) %}{{ x }}{% if x > 0 %}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "{% macro m(x) %}{% if x > 0 %}{{ m(x - 1, *varargs) }}{% else %}{{ varargs }}{% endif %}{% endmacro %}{{ m(2, 'a') }}",
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}", "{% macro m() %}x{% endmacro %}{{ m.name }}{{ m is callable }}", "{% macro m(a, b=1) %}{{ varargs }}{% endmacro %}{{ m.name }}{{ m.arguments }}",
        "{% macro m() %} x {% endmacro %}[{{ m() | trim }}]{{ m() | length }}", "{% macro m(a) %}{% set ns = namespace(x=a) %}{% set ns.x = ns.x + 1 %}{{ ns.x }}{% endmacro %}{{ m(1) }}{{ m(5) }}", "{{ m() }}{% macro m() %}x{% endmacro %}",
        "{% macro m(l) %}{{ l }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'l': 2}) }}", "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*l[:2]) }}", "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}[{{ m('q') }}]", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
        "{% macro m(content, is_system=false) %}{% if content is string %}{{ content }}{% elif content is iterable and content is not mapping %}{% for c in content %}{{ c.text }}{% endfor %}{% endif %}{% endmacro %}{{ m('a') }}{{ m([{'text': 'b'}]) }}{{ m(none) }}",
        "{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x is defined }}", "{% for m in messages %}{% generation %}{{ m.role }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% block a %}x{% endblock %}{{ self.a() }}",
        "{% if n == 3 %}a{% elif n == 4 %}b{% else %}c{% endif %}", "{% if n > 3 %}a{% elif n == 3 and t %}b{% else %}c{% endif %}", "{% if missing %}a{% endif %}b", "{% if missing.x %}a{% endif %}b", "{% if not missing %}a{% endif %}", "{% if l %}a{% endif %}{% if [] %}b{% endif %}{% if {} %}c{% endif %}{% if 0.0 %}d{% endif %}{% if '' %}e{% endif %}{% if nothing %}f{% endif %}{% if range(0) %}g{% endif %}",
        "{% if l | select %}a{% endif %}", "{% if namespace() %}a{% endif %}", "{% set n = n + 1 %}{{ n }}", "{% set true = 1 %}", "{% set x = none %}{{ x is none }}{{ x is defined }}", "{% set x = missing %}{{ x is defined }}", "{{ x }}{% set x = 1 %}", "{% autoescape true %}{{ '<' }}{% endautoescape %}", "{% do l.append(1) %}", "{% nope %}", "{% if %}", "{{", "{{ }}", "{%", "{{ 1 + }}", "{{ 'a }}", "{{ a b }}", "{{ (1 }}", "{% set x %}", "{# x",
        "{% import 'x' as y %}", "{% extends 'x' %}", "{{ [1, 2] | map('string') | map('length') | sum }}", "{{ d.items() | map('first') | join(',') }}", "{% set content = messages[1]['content'] | trim + '!' %}{{ content }}", "{{ messages[0]['content'] | trim + '\n' + s }}", "{{ '' ~ messages[0].content ~ eos_token }}",
        "{{ 'a' if messages[0]['role'] == 'system' else '' }}{{ (messages[1].content or '').strip() }}", "{% set x = messages[0].content.split(' ')[-1] %}{{ x }}", "{{ s.split(' ')[1].upper()[::-1] }}", "{{ (s | upper).lower().title() | length }}", "{% set a = [] %}{% set a = a + ['x'] %}{{ a }}",
        "{% set parts = s.rsplit(' ', 1) %}{{ parts[0] }}|{{ parts[1] }}", "{{ s.partition(' ')[2] }}", "{% set x = d.copy() %}{{ x.b }}", "{{ '%s=%s' % ('a', d.b) }}{{ ', '.join(d.keys()) }}", "{{ n // 2 * 2 + n % 2 == n }}", "{{ '=' * 20 }}\n{{ '-' * (s | length) }}", "{%- for i in range(2) %}{{ '  ' * i }}- {{ i }}\n{% endfor %}",
        "{{ raise_exception('x') if false else 'ok' }}", "{% if false %}{{ nope() }}{% endif %}", "{{ missing | default([]) | length }}", "{{ dict(a=1) | tojson }}{{ dict(d, z=1) | length }}", "{% set x = {'a': 1} %}{{ x.a }}{{ x['a'] }}{{ x.get('a') }}", "{{ {'a': 1, 'a': 2} }}", "{% set x = dict(d, **{'q': 5}) %}{{ x.q }}",
    ],
}


def render(source):
    """What a template makes, or None where it fails."""
    try:
        return chat_template_utils._compile_jinja_template(source).render(**json.loads(json.dumps(CONTEXT)))
    except Exception:
        return None


def main():
    goldens = {"context": CONTEXT, "cases": {}}
    for subject, text in EXPRESSIONS.items():
        expressions = [line.strip() for line in text.replace("\\\n", "").split("\n") if line.strip()]
        goldens["cases"][subject] = [f"{{{{ {expression} }}}}" for expression in expressions]
    goldens["cases"] |= TEMPLATES
    cases = {}
    for subject, sources in goldens["cases"].items():
        rendered = {source: render(source) for source in sources}
        # An address tells nothing.
        cases[subject] = {source: text for source, text in rendered.items() if " at 0x" not in (text or "")}
    with OUTPUT.open("w") as file:
        file.write('{"context": ' + json.dumps(CONTEXT, ensure_ascii=False) + ',\n"cases": {\n')
        parts = []
        for subject, rendered in cases.items():
            rows = ",\n".join(f"{json.dumps(k, ensure_ascii=False)}: {json.dumps(v, ensure_ascii=False)}" for k, v in rendered.items())
            parts.append(f"{json.dumps(subject)}: {{\n{rows}\n}}")
        file.write(",\n".join(parts) + "\n}}\n")
    print(f"{sum(map(len, cases.values()))} templates")


if __name__ == "__main__":
    main()
