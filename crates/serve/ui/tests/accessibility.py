"""Names, roles, contrast and overflow of every view, checked in the page itself."""

CHECK = r"""(() => {
  const problems = [];
  const shown = (e) => e.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: false });
  const name = (e) => (e.getAttribute("aria-label") || (e.getAttribute("aria-labelledby") && document.getElementById(e.getAttribute("aria-labelledby"))?.textContent)
    || [...(e.labels ?? [])].map((l) => l.textContent).join(" ") || e.textContent || e.title || "").trim();
  for (const e of document.querySelectorAll("a[href], button, input, select, textarea, summary, [role=button], [role=listbox], [role=option], [role=region], dialog, nav, aside, article, section[aria-label]")) {
    if (shown(e) && !name(e) ) problems.push("no name: " + e.outerHTML.slice(0, 120));
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) problems.push("id twice: " + id);
  for (const e of document.querySelectorAll("[aria-labelledby], [aria-describedby], [aria-activedescendant], label[for]")) {
    for (const attribute of ["aria-labelledby", "aria-describedby", "aria-activedescendant", "for"]) {
      const id = e.getAttribute(attribute);
      if (id && !document.getElementById(id)) problems.push(`${attribute} names nothing: ${id}`);
    }
  }
  if (document.querySelectorAll("main").length !== 1) problems.push("not one main");
  if (document.querySelectorAll("h1").length !== 1) problems.push("not one h1");
  for (const e of document.querySelectorAll("button button, a button, button a, label label, [aria-hidden=true] button, [aria-hidden=true] a")) problems.push("nested control: " + e.outerHTML.slice(0, 100));

  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const background = (e) => { const layers = []; for (let n = e; n; n = n.parentElement) { const c = parse(getComputedStyle(n).backgroundColor); layers.push(c); if (c[3] === 1) break; } return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]); };
  const light = (c) => { const [r, g, b] = c.map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || seen.has(e) || !shown(e) || e.closest(".visually-hidden, .skip, :disabled, option")) continue;
    seen.add(e);
    let opacity = 1;
    for (let n = e; n; n = n.parentElement) opacity *= Number(getComputedStyle(n).opacity);
    if (opacity === 0) continue;
    const style = getComputedStyle(e);
    const below = background(e);
    const color = parse(style.color);
    const value = ratio(over([...color.slice(0, 3), color[3] * opacity], below), below);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (value < (large ? 3 : 4.5)) problems.push(`contrast ${value.toFixed(2)}: ${e.localName}.${e.className} “${walker.currentNode.data.trim().slice(0, 40)}”`);
  }
  for (const e of document.querySelectorAll(".icon-button, .send")) {
    if (!shown(e) || e.disabled) continue;
    let opacity = 1;
    for (let n = e; n; n = n.parentElement) opacity *= Number(getComputedStyle(n).opacity);
    const below = background(e);
    if (opacity > 0 && ratio(parse(getComputedStyle(e).color), below) < 3) problems.push("contrast of icon: " + name(e));
    const box = e.getBoundingClientRect();
    if (box.width < 24 || box.height < 24) problems.push(`small target ${box.width}×${box.height}: ${name(e)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) problems.push(`the page is ${document.documentElement.scrollWidth} wide, the window ${innerWidth}`);
  for (const e of document.querySelectorAll(".scroller, .settings-body, .composer, .head")) {
    if (shown(e) && e.scrollWidth > e.clientWidth + 1) problems.push(`wider than its place: ${e.className} ${e.scrollWidth} > ${e.clientWidth}`);
  }
  return problems;
})()"""

RICH = ("say # A title\n\nSome **bold** and `code`, a [link](https://example.com), and a word:supercalifragilisticexpialidocioussupercalifragilisticexpialidocious\n\n"
        "| name | count | a longer column of words | and another one |\n|---|--:|---|---|\n| one | 1 | x | y |\n\n- item\n  - nested\n- [x] task\n\n> quote\n\n"
        "```python\n# comment\ndef f(x):\n    return \"text\" + str(42)  # a line that is much longer than the window of a phone, so that it must scroll\n```\n\nמה שלומך היום? שלום")


def check_views(site, ask, button, choose):
    """Problems of all views, at three widths, in both themes."""
    problems = []
    tab = site.tab(width=1440, height=900)
    ask(tab, RICH)
    ask(tab, "fail here")
    tab.js("document.querySelector('.said').textContent")
    chat = tab.js("location.hash")

    def check(view):
        for width, height in ((1440, 900), (768, 900), (360, 640), (720, 450)):
            for theme in ("light", "dark"):
                tab.size(width, height, mobile=False)
                tab.js(f"document.documentElement.dataset.theme = '{theme}'")
                tab.wait("true")
                problems.extend(f"{view} {width} {theme}: {problem}" for problem in tab.js(CHECK))
        tab.size(1440, 900)

    check("chat")
    tab.click("[aria-label='Settings']")
    check("settings")
    tab.js("document.querySelector('[aria-label=\"Close the settings\"]').click()")
    ask(tab, "hello")
    tab.click(button("Token probabilities"))
    tab.wait("document.querySelector('.tokens')")
    tab.js("document.querySelector('.tokens').focus()")
    check("tokens")
    tab.click(button("Edit"))
    check("edit")
    tab.key("Escape")
    tab.js("document.activeElement.blur()")
    tab.key("?")
    check("help")
    tab.key("Escape")
    choose(tab, "Request and reproducibility")
    check("request")
    tab.key("Escape")
    tab.click(".message.assistant.last .menu-button")
    tab.wait("document.querySelector('.menu:popover-open')")
    check("menu")
    tab.key("Escape")
    for view in ("embeddings", "tokenizer", "server"):
        tab.js(f"location.hash = '#/{view}'")
        tab.wait("document.querySelector('.tool-view h1')")
        if view == "embeddings":
            tab.wait("document.querySelector('#embedding-model').value")
            tab.click(".tool-content .primary")
            tab.wait("document.querySelector('.matrix')")
        elif view == "tokenizer":
            tab.wait("document.querySelector('.piece')")
        else:
            tab.wait("document.querySelector('tbody tr')")
        check(view)
    tab.js("location.hash = '#/'")
    tab.wait("document.querySelector('.welcome')")
    check("welcome")
    # Right-to-left text, and the list of chats on a phone.
    tab.js(f"location.hash = '{chat}'")
    tab.wait("document.querySelector('.message')")
    direction = tab.js("getComputedStyle([...document.querySelectorAll('.markdown p')].find((p) => p.textContent.includes('שלום'))).direction")
    if direction != "rtl":
        problems.append(f"Hebrew is shown {direction}")
    tab.size(360, 640)
    tab.js("document.querySelector('.head [aria-label=Chats]').click()")
    check("list")
    # Nothing moves for readers who ask for that.
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    if tab.js("getComputedStyle(document.getElementById('sidebar')).transitionDuration") not in ("0s", "0s, 0s"):
        problems.append("reduced motion is ignored")
    return sorted(set(problems))
