"""What the Netron server gives out, and to whom: the one model and the package's page, to this machine only."""

import http.client
import re
from collections.abc import Iterator

import pytest

from app.netron import NetronServer

MODEL = b"\x08\x08model bytes"


@pytest.fixture
def server() -> Iterator[NetronServer]:
    running = NetronServer(MODEL, "net<one>.onnx")
    yield running
    running.close()


def get(
    server: NetronServer, path: str, host: str | None = None, method: str = "GET"
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host if host is not None else f"127.0.0.1:{server.port}")
        connection.endheaders()
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def test_it_listens_on_this_machine_only(server: NetronServer) -> None:
    assert server._server.server_address[0] == "127.0.0.1"
    assert server.url.startswith(f"http://127.0.0.1:{server.port}/")


def test_the_page_names_the_model_and_carries_no_version_or_old_date(server: NetronServer) -> None:
    status, _, body = get(server, f"/{server.token}/")
    page = body.decode()
    assert status == 200
    assert '<meta name="version" content="0.0.0">' in page
    assert len(re.findall('<meta name="version"', page)) == 1
    assert f'<meta name="file" content="model/{server.name}">' in page
    assert "net<one>" not in page


def test_the_model_and_the_static_files_are_served(server: NetronServer) -> None:
    assert get(server, f"/{server.token}/model/{server.name}")[::2] == (200, MODEL)
    status, headers, body = get(server, f"/{server.token}/index.js")
    assert (status, headers["Content-Type"]) == (200, "text/javascript")
    assert body
    assert get(server, f"/{server.token}/index.js?query", method="HEAD")[2] == b""


def test_every_answer_keeps_the_page_from_talking_to_others(server: NetronServer) -> None:
    headers = get(server, f"/{server.token}/")[1]
    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "connect-src 'self'" in policy
    assert "http" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "", "127.0.0.1", "localhost:1", "127.0.0.1.evil:{port}"]
)
def test_another_host_name_finds_nothing(server: NetronServer, host: str) -> None:
    """DNS rebinding: a page elsewhere that points its own name here."""
    assert get(server, f"/{server.token}/", host.format(port=server.port))[0] == 404


@pytest.mark.parametrize("path", ["/", "/index.html", "/wrong/", "/{token}x/", "/{token}", "/x/{token}/"])
def test_without_the_secret_path_nothing_is_found(server: NetronServer, path: str) -> None:
    assert get(server, path.format(token=server.token))[0] == 404


@pytest.mark.parametrize(
    "rest",
    [
        "server.py", "__init__.py", "../netron/server.py", "..%2fserver.py", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd",
        "model/other.onnx", "model/", "model/../server.py", "model/%2e%2e/index.html", ".hidden", "index.html%00.js",
        "..\\server.py", "METADATA", "no.js",
    ],
)  # fmt: skip
def test_nothing_but_the_page_and_the_model_is_served(server: NetronServer, rest: str) -> None:
    assert get(server, f"/{server.token}/{rest}")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_only_reading_is_possible(server: NetronServer, method: str) -> None:
    assert get(server, f"/{server.token}/", method=method)[0] == 501


def test_two_servers_do_not_mix_their_models(server: NetronServer) -> None:
    other = NetronServer(b"other", "other.onnx")
    try:
        assert other.token != server.token
        assert get(server, f"/{server.token}/model/{server.name}")[2] == MODEL
        assert get(other, f"/{other.token}/model/other.onnx")[2] == b"other"
        assert get(other, f"/{server.token}/")[0] == 404
    finally:
        other.close()
