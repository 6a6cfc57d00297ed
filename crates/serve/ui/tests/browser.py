"""Chromium without a window, driven over its DevTools protocol."""

import base64
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import websocket

KEYS = {"Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, ""), "Tab": ("Tab", 9, ""), "ArrowRight": ("ArrowRight", 39, ""),
        "ArrowDown": ("ArrowDown", 40, ""), "ArrowLeft": ("ArrowLeft", 37, "")}


class Browser:
    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="page-test-")
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
             "--hide-scrollbars", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--remote-allow-origins=*",
             "--force-color-profile=srgb", "--disable-features=Translate,OptimizationHints", f"--user-data-dir={self.profile}", "about:blank"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for line in self.process.stderr:
            if match := re.search(r"ws://127\.0\.0\.1:(\d+)(\S+)", line):
                self.port = int(match[1])
                self.socket = websocket.create_connection(match[0])
                break
        self.ids = itertools.count(1)

    def call(self, method, **parameters):
        number = next(self.ids)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == number:
                return message.get("result")

    def tab(self, url, **options):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        return Tab(self.port, target, url, **options)

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        shutil.rmtree(self.profile, ignore_errors=True)


class Tab:
    """A page with what it asked for (`requests`), logged and threw."""

    def __init__(self, port, target, url, width=1100, height=800, dark=False, mobile=False, wait=True):
        self.socket = websocket.create_connection(f"ws://127.0.0.1:{port}/devtools/page/{target}")
        self.target = target
        self.ids = itertools.count(1)
        self.requests, self.problems, self.dialogs = [], [], []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height, dark, mobile)
        self.call("Page.navigate", url=url)
        if wait:
            self.wait("document.documentElement.dataset.ready !== undefined")

    def size(self, width, height, dark=False, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def call(self, method, **parameters):
        number = next(self.ids)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.note(message)

    def note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error" and parameters["entry"]["source"] != "network":
            self.problems.append(parameters["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(parameters["message"])
            self.socket.send(json.dumps({"id": next(self.ids), "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}))

    def js(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise AssertionError(f"{expression[:200]}: {details.get('exception', {}).get('description', details['text'])}")
        return result["result"].get("value")

    def wait(self, condition, timeout=60.0):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                if value := self.js(f"!!({condition})"):
                    return value
            except (AssertionError, RuntimeError):
                pass
            time.sleep(0.03)
        raise AssertionError(f"never true in {timeout} s: {condition}")

    def text(self, selector):
        """The text, also of what is not drawn yet."""
        return self.js(f"document.querySelector({json.dumps(selector)})?.textContent ?? null")

    def click(self, selector):
        """A click of the mouse on the middle of an element, which must be on top there."""
        box = self.js(f"""(async () => {{
            const e = document.querySelector({json.dumps(selector)});
            if (!e) return null;
            e.scrollIntoView({{ block: "nearest" }});
            // Elements that were out of sight get their size first.
            for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame);
            const r = e.getBoundingClientRect();
            const [x, y] = [r.x + r.width / 2, r.y + r.height / 2];
            const top = document.elementFromPoint(x, y);
            return {{ x, y, covered: !(top && (e.contains(top) || top.contains(e))) && top?.outerHTML.slice(0, 120) }};
        }})()""")
        assert box, f"there is no {selector}"
        assert not box["covered"], f"{selector} is covered by {box['covered']}"
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box["x"], y=box["y"], button="left" if kind != "mouseMoved" else "none", clickCount=1)

    def key(self, key, modifiers=0):
        """Modifiers: 1 Alt, 2 Ctrl, 8 Shift."""
        name, code, text = KEYS.get(key, (key, ord(key.upper()) if len(key) == 1 else 0, "" if modifiers & 2 else key))
        common = {"key": name, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self.call("Page.close")
        self.socket.close()
