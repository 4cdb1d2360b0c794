"""Objects of a store as sources: a real S3 server on this machine, read by s3fs (`make test-stores` installs both)."""

import logging
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest

MISSING = [name for name in ("s3fs", "moto") if find_spec(name) is None]
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (`make test-stores` installs them)"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(botocore|moto|boto3|werkzeug|flask).*"),
]
LARGE = 40_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Two buckets; anybody may read `shared/public`."""
    import boto3  # not by whoever only collects the tests: both take long
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    served = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    served.start()
    host, port = served.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=endpoint, **keys)
    for bucket in ("logs", "other"):
        client.create_bucket(Bucket=bucket)
    client.put_object(Bucket="logs", Key="day/app@2.log", Body=b"one\nERROR two\n")
    client.put_object(Bucket="logs", Key="day/public", Body=b"for all\n", ACL="public-read")
    client.put_object(Bucket="logs", Key="day/large", Body=b"0123456789" * (LARGE // 10))
    client.put_object(Bucket="logs", Key="night/app.log", Body=b"dark\n")
    client.put_object(Bucket="other", Key="day/app.log", Body=b"others\n")
    client.close()
    yield endpoint
    served.stop()


@pytest.fixture
def policy(permitting: Callable[[str], str]) -> str:
    """A policy that permits a part of one bucket."""
    return permitting("s3://logs/day/")


@pytest.fixture
def account(server: str, accounts: Callable[[str, str], None]) -> None:
    """The account that may read all, at this server in place of Amazon's."""
    accounts(f"'s3://logs/': {{user: key, password_file: $SECRET, endpoint: '{server}'}}", "secret")


@pytest.mark.usefixtures("account")
async def test_an_object_is_loaded_like_a_file(connect, policy: str) -> None:
    """K-1, ours: refreshed, whole where it takes several requests, and with an @ in its name."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="log", path="s3://logs/day/app@2.log"))["line_count"] == 2
        assert (await agent("refresh", name="log"))["changed"] is False
        assert (await agent("load_context", name="large", path="s3://logs/day/large"))["size"] == LARGE


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    "page",
    ["logs/night/app.log", "other/day/app.log", "LOGS/day/app.log", "logs/day/..%2fnight/app.log", "logs/day/a%2fb"],
)
async def test_an_object_that_the_policy_does_not_permit_is_refused(connect, policy: str, page: str) -> None:
    """Though the account could read it."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=f"s3://{page}")
        assert (answer["error"], "does not permit" in answer["message"]) == ("cannot_read", True)


async def test_without_a_secret_what_is_public_is_read(
    connect, monkeypatch: pytest.MonkeyPatch, policy: str, server: str, accounts: Callable[[str, str], None]
) -> None:
    """And nothing else: keys are searched for in no other place, the environment of the daemon included."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    accounts(f"'s3://logs/': {{endpoint: '{server}'}}", "")
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        assert (await agent("load_context", name="log", path="s3://logs/day/public"))["size"] == 8
        refused = await agent("load_context", name="log", path="s3://logs/day/app@2.log")
        assert (refused["error"], "Forbidden" in refused["message"]) == ("cannot_read", True)


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(("key", "said"), [("none", "FileNotFoundError"), ("", "it is a folder")])
async def test_what_cannot_be_read_is_said(connect, policy: str, key: str, said: str) -> None:
    """K-13: it costs its own load only."""
    async with connect(RLM_KERNEL_POLICY=policy) as agent:
        answer = await agent("load_context", name="log", path=f"s3://logs/day/{key}")
        assert (answer["error"], said in answer["message"]) == ("cannot_read", True)
