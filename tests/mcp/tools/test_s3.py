"""Objects of a store as sources: a real S3 server on this machine, read by s3fs (`make test-stores` installs both)."""

import logging
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("s3fs", reason="s3fs is not installed: `make test-stores` installs it, with a server to read from")
pytest.importorskip("moto", reason="moto is not installed: `make test-stores` installs it")

import boto3
from moto.server import ThreadedMotoServer

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(botocore|moto|boto3|werkzeug|flask).*"),
]
LARGE = 40_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Two buckets; anybody may read `shared/public`."""
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    served = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    served.start()
    host, port = served.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=endpoint, **keys)
    for bucket in ("logs", "other"):
        client.create_bucket(Bucket=bucket)
    client.put_object(Bucket="logs", Key="day/app.log", Body=b"one\nERROR two\n")
    client.put_object(Bucket="logs", Key="day/public", Body=b"for all\n", ACL="public-read")
    client.put_object(Bucket="logs", Key="day/large", Body=b"0123456789" * (LARGE // 10))
    client.put_object(Bucket="logs", Key="night/app.log", Body=b"dark\n")
    client.put_object(Bucket="other", Key="day/app.log", Body=b"others\n")
    client.close()
    yield endpoint
    served.stop()


@pytest.fixture
def policy(permitting: Callable[[str], str], server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A policy that permits a part of one bucket, and the environment of a daemon that has an account."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return permitting("s3://logs/day/")


async def test_an_object_is_loaded_like_a_file(connect, policy: str) -> None:
    """K-1, ours: with the daemon's account, refreshed, and whole where it takes several requests."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="log", path="s3://logs/day/app.log"))["line_count"] == 2
        assert (await agent("refresh", name="log"))["changed"] is False
        assert (await agent("load_context", name="large", path="s3://logs/day/large"))["size"] == LARGE


@pytest.mark.parametrize("url", ["s3://logs/night/app.log", "s3://other/day/app.log", "s3://LOGS/day/app.log"])
async def test_an_object_that_the_policy_does_not_permit_is_refused(connect, policy: str, url: str) -> None:
    """Though the account could read it."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=url)
        assert (answer["error"], "does not permit" in answer["message"]) == ("cannot_read", True)


async def test_without_an_account_what_is_public_is_read(connect, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """And nothing else: no other place is searched for keys."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="log", path="s3://logs/day/public"))["size"] == 8
        refused = await agent("load_context", name="log", path="s3://logs/day/app.log")
        assert (refused["error"], "Forbidden" in refused["message"]) == ("cannot_read", True)


@pytest.mark.parametrize(("key", "said"), [("none", "FileNotFoundError"), ("", "it is a folder")])
async def test_what_cannot_be_read_is_said(connect, policy: str, key: str, said: str) -> None:
    """K-13: it costs its own load only."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=f"s3://logs/day/{key}")
        assert (answer["error"], said in answer["message"]) == ("cannot_read", True)
