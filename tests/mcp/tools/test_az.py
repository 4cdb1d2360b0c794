"""Azure Blob Storage as a source: Azurite, Microsoft's own emulator (`make store-servers` installs it).

It checks signatures, shared access signatures and, behind TLS, what a token says of itself, as Azure does.
"""

import base64
import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import make_certificate
from resolved import read_as

pytest.importorskip("azure.storage.blob", reason="azure-storage-blob is not installed: `make test-stores` installs it")

from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas

from rlm_kernel.confined.azure import needed

PLACES = os.pathsep.join([f"{sys.prefix}/azurite/node_modules/.bin", os.environ.get("PATH", "")])
AZURITE = shutil.which("azurite-blob", path=PLACES)
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(AZURITE is None, reason="azurite is not installed: `make store-servers` installs it, with npm"),
]
USER, KEY = "examplestore", base64.b64encode(b"a secret key").decode()
HOST = f"{USER}.blob.core.windows.net"
LARGE = 20_000_000
SECONDS_TO_START = 90

Accounts = Callable[[str, str], None]


def port_of(process: subprocess.Popen[bytes], said: Path) -> int:
    """The port on which a server says that it listens."""
    until = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(r"successfully listens on https://[\d.]+:(\d+)\s", said.read_text()):
            return int(found[1])
        time.sleep(0.05)
    raise AssertionError(f"azurite does not listen; it ended with {process.poll()} and said {said.read_text()!r}")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of this machine, and of the host that the storage account has at Azure."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "localhost", HOST)


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[str]:
    """The endpoint of a server with two containers, of which `public` is for all."""
    assert AZURITE is not None
    folder = tmp_path_factory.mktemp("azurite")
    command = [AZURITE, "--blobPort=0", "--blobHost=127.0.0.1", f"--cert={certificate}", f"--key={certificate}"]
    command += ["--oauth=basic", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    environment = {**os.environ, "AZURITE_ACCOUNTS": f"{USER}:{KEY}"}
    said = folder / "said"
    with (
        said.open("wb") as output,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            endpoint = f"https://localhost:{port_of(process, said)}/{USER}"
            _fill(endpoint, certificate)
            yield endpoint
        finally:
            process.kill()


def _fill(endpoint: str, certificate: Path) -> None:
    with BlobServiceClient(endpoint, credential=KEY, connection_verify=str(certificate)) as client:
        hers, public = client.create_container("logs"), client.create_container("public", public_access="blob")
        hers.upload_blob("day/a+ü%20~", b"one\nERROR two\n")
        hers.upload_blob("day/large", b"0123456789" * (LARGE // 10))
        hers.upload_blob("day/app.log", b"one\nERROR two\n")
        hers.upload_blob("night/app.log", b"dark\n")
        hers.upload_blob("day/folder", b"", metadata={"hdi_isfolder": "true"})
        public.upload_blob("day/app.log", b"for all\n")


@pytest.fixture
def policy(permitting: Callable[[str], str], azurite: str, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A policy that permits a part of one container."""
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", azurite)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    return permitting("az://logs/day/")


def shared_access(minutes: int) -> str:
    """A signature with which anybody may read one container for so long."""
    may, until = ContainerSasPermissions(read=True), dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)
    said: str = generate_container_sas(USER, "logs", account_key=KEY, permission=may, expiry=until)
    return said


def token(minutes: int, audience: str = "https://storage.azure.com") -> str:
    """What Entra ID gives out, but for its signature, which Azurite cannot check."""
    now = int(time.time())
    claims = {
        "iss": "https://sts.windows.net/x",
        "aud": audience,
        "iat": now,
        "nbf": now - 600,
        "exp": now + 60 * minutes,
    }
    parts = (json.dumps(part).encode() for part in ({"alg": "RS256", "typ": "JWT"}, claims))
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "c2lnbmF0dXJl"])


async def test_an_object_is_loaded_like_a_file(connect, policy: str, accounts: Accounts) -> None:
    """K-1, ours: with the key of the storage account, refreshed, whole where it is large, by whatever name."""
    accounts(f"'az://logs/': {{user: {USER}, password_file: $SECRET}}", KEY)
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="log", path="az://logs/day/app.log"))["line_count"] == 2
        assert (await agent("refresh", name="log"))["changed"] is False
        assert (await agent("load_context", name="large", path="az://logs/day/large"))["size"] == LARGE
        assert (await agent("load_context", name="odd", path="az://logs/day/a+ü%20~"))["line_count"] == 2


@pytest.mark.parametrize(
    ("held", "useless"),
    [
        (lambda: shared_access(5), lambda: shared_access(-5)),
        (lambda: f"https://{USER}.blob.core.windows.net/logs?{shared_access(5)}", lambda: token(-5)),
        (lambda: token(5), lambda: token(5, "https://example.org")),
    ],
    ids=["signature", "its URL", "token"],
)
async def test_a_shared_access_signature_or_a_token_reads_until_it_has_run_out(
    connect, policy: str, accounts: Accounts, held: Callable[[], str], useless: Callable[[], str]
) -> None:
    """Without a user; it is looked at anew for each load, and told to nobody."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        accounts("'az://logs/': {password_file: $SECRET}", held())
        assert (await agent("load_context", name="log", path="az://logs/day/app.log"))["line_count"] == 2
        accounts("'az://logs/': {password_file: $SECRET}", secret := useless())
        refused = await agent("load_context", name="log", path="az://logs/day/app.log")
        assert (refused["error"], "mend its account" in refused["hint"]) == ("cannot_read", True)
        assert secret not in agent.text
        assert (await agent("peek", name="log"))["content"] == "one\nERROR two"


async def test_without_an_account_what_is_public_is_read(
    connect, policy: str, permitting: Callable[[str], str]
) -> None:
    """Of what is not, Azure says that it is not there; the answer says what else it may be."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        refused = await agent("load_context", name="log", path="az://logs/day/app.log")
        assert (refused["error"], "or name an account" in refused["hint"]) == ("cannot_read", True)
    async with connect("other", RLM_KERNEL_POLICY=permitting("az://public/")) as agent:
        assert (await agent("load_context", name="log", path="az://public/day/app.log"))["size"] == 8


@pytest.mark.parametrize(
    ("user", "held", "said"),
    [
        (f"user: {USER}, ", base64.b64encode(b"another key").decode(), "the server says 400 Authentication"),
        (f"user: {USER}, ", "not base64", "no key of a storage account"),
        ("", KEY, "a key has a `user`"),
    ],
)
async def test_a_secret_that_is_none_is_refused(
    connect, policy: str, accounts: Accounts, user: str, held: str, said: str
) -> None:
    """A key is never sent as a token."""
    accounts(f"'az://logs/': {{{user}password_file: $SECRET}}", held)
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path="az://logs/day/app.log")
        assert (answer["error"], said in answer["message"] + answer["hint"]) == ("cannot_read", True)
        assert held not in agent.text


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("az://logs/night/app.log", "does not permit"),
        ("az://logs/day/none", "404"),
        ("az://logs/day/folder", "it is a folder"),
    ],
)
async def test_what_cannot_be_read_is_said(connect, policy: str, accounts: Accounts, url: str, said: str) -> None:
    """K-13: it costs its own load only."""
    accounts(f"'az://logs/': {{user: {USER}, password_file: $SECRET}}", KEY)
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=url)
        assert (answer["error"], said in answer["message"]) == ("cannot_read", True)


@pytest.mark.parametrize("scheme", ["abfs", "abfss"])
async def test_abfs_names_the_same_objects_and_is_permitted_by_itself(
    connect, policy: str, permitting: Callable[[str], str], accounts: Accounts, scheme: str
) -> None:
    """K-1, ours: with the key of the storage account; not where another scheme is permitted, or has the account."""
    async with connect("az", RLM_KERNEL_POLICY=policy) as agent:
        refused = await agent("load_context", name="log", path=f"{scheme}://logs/day/app.log")
        assert f'`urls: ["{scheme}://logs/"]`' in refused["hint"]
    async with connect(RLM_KERNEL_POLICY=permitting(f"{scheme}://logs/day/")) as agent:
        accounts(f"'az://logs/': {{user: {USER}, password_file: $SECRET}}", KEY)
        refused = await agent("load_context", name="log", path=f"{scheme}://logs/day/app.log")
        assert f'"{scheme}://logs/": {{password_file: FILE}}' in refused["hint"]
        accounts(f"'{scheme}://logs/': {{user: {USER}, password_file: $SECRET}}", KEY)
        assert (await agent("load_context", name="log", path=f"{scheme}://logs/day/app.log"))["line_count"] == 2
        assert (await agent("load_context", name="large", path=f"{scheme}://logs/day/large"))["size"] == LARGE
        assert (await agent("load_context", name="odd", path=f"{scheme}://logs/day/a+ü%20~"))["line_count"] == 2
        folder = await agent("load_context", name="folder", path=f"{scheme}://logs/day/folder")
        assert "it is a folder" in folder["message"]


async def test_abfss_is_never_read_without_tls(
    connect, permitting: Callable[[str], str], azurite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the endpoint of the environment would be."""
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", azurite.replace("https:", "http:"))
    async with connect(RLM_KERNEL_POLICY=permitting("abfss://public/")) as agent:
        answer = await agent("load_context", name="log", path="abfss://public/day/app.log")
        assert "over TLS only, and AZURE_STORAGE_ENDPOINT is no https URL" in answer["message"]


@pytest.mark.parametrize("held", [lambda: KEY, lambda: shared_access(5)], ids=["key", "signature"])
def test_a_url_that_names_its_storage_account_asks_that_one(
    azurite: str,
    certificate: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    held: Callable[[], str],
) -> None:
    """By its own host at Azure, whatever endpoint or account the environment names."""
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "https://evil.example")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "another")
    prefix = f"abfss://logs@{USER}.dfs.core.windows.net/"
    account = {"prefix": prefix, "user": USER if held() == KEY else None, "password": held()}
    request = {"url": f"{prefix}day/app.log", "permitted": [prefix], "account": account}
    port = int(re.sub(r".*:(\d+)/.*", r"\1", azurite))
    assert needed(request["url"]) == ()
    assert read_as(HOST, port, certificate, tmp_path / "taken", request) == {"size": 14}
    assert (tmp_path / "taken").read_bytes() == b"one\nERROR two\n"
    other = {**request, "account": {**account, "prefix": "abfss://logs@another.dfs.core.windows.net/"}}
    assert "403" in read_as(HOST, port, certificate, tmp_path / "taken", other)["message"]
