"""A session from another machine, through Jupyter Kernel Gateway with a token; and papermill, which is as heavy."""

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect
from waiting import wait_until

from rlm_client.client import call_tool
from rlm_kernel.jupyter import kernelspecs

SECONDS = 60


def agent(session: str, code: str) -> str:
    """Run a cell as an agent does; its value as text."""
    return str(call_tool("eval_code", {"code": code}, session=session).get("result"))


class Gateway:
    """A running Kernel Gateway."""

    def __init__(self, port: int, token: str) -> None:
        self.place, self.token = f"127.0.0.1:{port}", token

    def ask(self, method: str, path: str, content: Any = None, token: str | None = None) -> Any:
        """Call its REST interface."""
        data = None if content is None else json.dumps(content).encode()
        headers = {"Authorization": f"token {self.token if token is None else token}"}
        request = urllib.request.Request(f"http://{self.place}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return json.loads(answer.read() or b"null")

    async def value(self, kernel: str, code: str) -> str:
        """Run a cell over its websocket; the text of its value."""
        headers = {"Authorization": f"token {self.token}"}
        request = HTTPRequest(f"ws://{self.place}/api/kernels/{kernel}/channels", headers=headers)
        line = await websocket_connect(request)
        header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": "remote", "username": ""}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        parts = {"header": header | {"version": "5.4"}, "parent_header": {}, "metadata": {}, "content": content}
        await line.write_message(json.dumps({**parts, "channel": "shell"}))
        async with asyncio.timeout(SECONDS):
            while (text := await line.read_message()) is not None:
                message = json.loads(text)
                if message["msg_type"] == "execute_result":
                    line.close()
                    return str(message["content"]["data"]["text/plain"])
        raise AssertionError("the gateway hung up")


@pytest.fixture
def gateway(daemon: Path, tmp_path: Path) -> Iterator[Gateway]:
    """A gateway as docs/notebooks.md starts it."""
    token, log = secrets.token_hex(16), tmp_path / "gateway.log"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "kernel_gateway", "--KernelGatewayApp.ip=127.0.0.1"]
    command += [f"--KernelGatewayApp.port={port}", "--KernelGatewayApp.allow_root=True"]
    with log.open("wb") as output:
        environment = {**os.environ, "KG_AUTH_TOKEN": token}
        server = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    def answers() -> bool:
        assert server.poll() is None, log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_until(answers)
    yield Gateway(port, token)
    server.terminate()
    server.wait(SECONDS)


def test_a_session_is_opened_through_a_gateway_with_its_token(gateway: Gateway) -> None:
    """K-29: from another machine.

    Without the token nobody gets in, and deleting the kernel ends the attachment only.
    """
    agent("far", "found = 41")
    name = kernelspecs.spec_name("far", "execute")
    for path in ("/api/kernelspecs", "/api/kernels"):
        with pytest.raises(urllib.error.HTTPError, match=r"40[13]"):
            gateway.ask("GET", path, token="wrong")
    assert name in gateway.ask("GET", "/api/kernelspecs")["kernelspecs"]
    kernel = gateway.ask("POST", "/api/kernels", {"name": name})["id"]
    with ThreadPoolExecutor(1) as thread:  # Playwright has a running loop in this one
        assert thread.submit(asyncio.run, gateway.value(kernel, "found += 1\nfound")).result(SECONDS) == "42"
    gateway.ask("DELETE", f"/api/kernels/{kernel}")
    assert agent("far", "found") == "42"


def test_papermill_runs_a_notebook_in_a_live_session(daemon: Path, tmp_path: Path) -> None:
    """K-29: with parameters, on the agent's variables, which stay."""
    agent("milled", "found = 20")
    name = kernelspecs.spec_name("milled", "execute")
    parameters = nbformat.v4.new_code_cell("step = 1", metadata={"tags": ["parameters"]})
    cells = [parameters, nbformat.v4.new_code_cell("found += step\nfound")]
    spec = {"name": name, "display_name": "RLM: milled", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), tmp_path / "in.ipynb")
    command = [sys.executable, "-m", "papermill", "in.ipynb", "out.ipynb", "-p", "step", "3", "--no-progress-bar"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=SECONDS)
    done = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert done.cells[-1].outputs[0].data["text/plain"] == "23"
    assert agent("milled", "found") == "23"
