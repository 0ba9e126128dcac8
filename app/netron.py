"""Shows a model in Netron's page, served by our own handler to this machine's browser only.

The package's own server serves the model's whole folder, answers any Host, reports to an analytics service and locks
itself half a year after its build. Here only the package's static files and the one model are served, under a random
path, and the page may talk to nobody else.
"""

import mimetypes
import re
import secrets
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from core.errors import BoltError

POLICY = (
    "default-src 'self'; connect-src 'self' blob: data:; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline';"
    " worker-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
STATIC = {".html", ".css", ".js", ".json", ".png", ".ico", ".svg"}
POLL_S = 0.05  # how soon the server notices that it is closed
HOSTS = {"127.0.0.1", "localhost"}


class NetronServer:
    """Serves one model from 127.0.0.1 on a free port until closed. `url` holds the secret path."""

    def __init__(self, model: bytes, name: str) -> None:
        """`model` is the ONNX file's content, `name` what the page calls it. Raises BoltError without the package."""
        self._model = model
        self.name = re.sub(r"[^\w.-]", "_", Path(name).name) or "model.onnx"
        self._static = _package()
        self.token = secrets.token_urlsafe(24)
        handler: type[_Handler] = type("Handler", (_Handler,), {})
        handler.answer, handler.token = staticmethod(self.answer), self.token
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = handler.port = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), name="bolt netron", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def answer(self, path: str) -> tuple[bytes, str] | None:
        """Body and content type of a path below the token; None is not found."""
        if path == f"model/{self.name}":
            return self._model, "application/octet-stream"
        name = path or "index.html"
        if "/" in name or "\\" in name or name.startswith(".") or Path(name).suffix not in STATIC:
            return None
        file = self._static / name
        if not file.is_file():
            return None
        body = file.read_bytes()
        if name == "index.html":
            body = self._page(body.decode()).encode()
        return body, mimetypes.guess_type(name)[0] or "application/octet-stream"

    def _page(self, page: str) -> str:
        """Names the model, and takes version and date from the page: they switch on telemetry and the age lock."""
        file, shown = escape(quote(self.name), quote=True), escape(self.name, quote=True)
        wanted = (
            '<meta name="type" content="Python"><meta name="version" content="0.0.0">'
            f'<meta name="file" content="model/{file}"><meta name="identifier" content="{shown}">'
        )
        page = re.sub(r'<meta name="version" content="[^"]*">', lambda _: wanted, page)
        today = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
        return re.sub(r'<meta name="date" content="[^"]*">', lambda _: f'<meta name="date" content="{today}">', page)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    answer: Callable[[str], tuple[bytes, str] | None]
    token: str
    port: int
    server_version = "bolt"
    sys_version = ""

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the path is a secret."""

    def do_GET(self) -> None:
        self._send(body=True)

    def do_HEAD(self) -> None:
        self._send(body=False)

    def _send(self, body: bool) -> None:
        found = self._find()
        if found is None:
            self.send_error(404)
            return
        content, kind = found
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Set-Cookie", f"consent=1; SameSite=Strict; Path=/{self.token}/")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _find(self) -> tuple[bytes, str] | None:
        host, _, port = (self.headers.get("Host") or "").rpartition(":")
        if host not in HOSTS or port != str(self.port):
            return None
        prefix, slash, rest = urlsplit(self.path).path.removeprefix("/").partition("/")
        if not slash or not secrets.compare_digest(prefix.encode(), self.token.encode()):
            return None
        return type(self).answer(unquote(rest))


def _package() -> Traversable:
    try:
        return files("netron")
    except ModuleNotFoundError:
        raise BoltError("the package netron is not installed", "run `python3 main.py setup`") from None
