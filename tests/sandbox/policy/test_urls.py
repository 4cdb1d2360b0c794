"""Which URLs a policy permits: what parsers take differently is refused."""

import pytest
from pydantic import ValidationError

from rlm_sandbox.policy import Policy, checked, loosened
from rlm_sandbox.policy.urls import permits

PREFIXES = (
    "https://example.org/data/",
    "http://127.0.0.1:8080/",
    "https://one.example/file.csv",
    "ftp://example.org/pub/",
    "s3://Bucket/logs/",
    "s3://bucket/file.csv",
    "gs://Bucket/logs/",
    "az://logs/day/",
    "sftp://example.org/pub/",
    "smb://example.org/logs/",
    "abfs://logs/day/",
    "hf://datasets/acme/logs/day/",
    "hf://acme/model@v1.0/",
    "hf://spaces/acme/app@refs/pr/1/app.py",
    "webhdfs://example.org:9870/pub/",
)
NEVER_READ = (
    "asynclocal", "asyncwrapper", "blockcache", "cached", "dask", "data", "dav", "davs", "dir", "dvc", "file",
    "filecache", "gcs", "generic", "git", "gist", "github", "hdfs", "libarchive", "local", "memory", "reference", "s3a",
    "abfss", "simplecache", "ssh", "tar", "webdav", "webdavs", "zip",
)  # fmt: skip


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/data/",
        "https://example.org/data/a/b.csv?x=1",
        "HTTPS://Example.ORG:443/data/x",
        "https://example.org./data/x",
        "http://127.0.0.1:8080/any",
        "https://one.example/file.csv?download=1",
        "FTP://example.org:21/pub/x",
        "s3://Bucket/logs/a/b",
        "gs://Bucket/logs/a/b",
        "az://logs/day/a/b",
        "sftp://example.org:22/pub/x",
        "smb://example.org:445/logs/a",
        "ABFS://logs/day/a%20b",
        "sftp://example.org/pub/a@b",
        "s3://Bucket/logs/a@b",
        "hf://datasets/acme/logs/day/a",
        "hf://acme/model@v1.0/a/b",
        "hf://spaces/acme/app@refs/pr/1/app.py",
        "webhdfs://example.org:9870/pub/x",
    ],
)
def test_what_lies_below_a_prefix_is_permitted(url: str) -> None:
    """Host and scheme are compared as such, not as letters."""
    assert permits(PREFIXES, url)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/data",
        "https://example.org/database/x",
        "https://example.org/data/../secret",
        "https://example.org/data/%2e%2e/secret",
        "https://example.org/data/.",
        "https://example.org/data/%2E",
        "az://logs/day/.",
        "hf://datasets/acme/logs/day/.",
        "https://example.org/data/%252e%252e/secret",
        "https://example.org/data/..\\secret",
        "http://example.org/data/x",
        "https://example.org:444/data/x",
        "https://example.org.evil.example/data/x",
        "https://example.org@evil.example/data/x",
        "https://evil.example/https://example.org/data/x",
        "https://user:pw@example.org/data/x",
        "simplecache::https://example.org/data/x",
        "https://example.org/data/x::https://evil.example/",
        "https://one.example/file.csv2",
        "https://one.example/file.csv/x",
        "http://127.0.0.1:8080",
        "http://127.0.0.1:99999999/",
        "http://2130706433:8080/",
        "file:///etc/passwd",
        "https://example.org/data/\nx",
        "https:///data/x",
        "ftp://example.org:2121/pub/x",
        "ftp://example.org/pub/x?y",
        "ftp://user:pw@example.org/pub/x",
        "s3://bucket/logs/x",
        "s3://Bucket:80/logs/x",
        "s3://Bucket./logs/x",
        "s3://Bucket/logs/x#y",
        "s3://bucket/file.csv?versionId=1",
        "s3a://Bucket/logs/x",
        "gs://Bucket:80/logs/x",
        "gs://Bucket/logs/x?alt=json",
        "az://logs/day/x?comp=list",
        "az://logs@other/day/x",
        "az://LOGS/day/x",
        "az://logs/night/x",
        "sftp://example.org:2222/pub/x",
        "sftp://example.org/pub/x?username=root",
        "sftp://user@example.org/pub/x",
        "smb://example.org:4450/logs/x",
        "smb://EXAMPLE;anna@example.org/logs/x",
        "smb://example.org/logs\\x",
        "smb://example.org/LOGS/x",
        "//example.org/data/x",
        "",
        "abfs://logs/night/x",
        "abfs://logs/day",
        "abfs://logs2/day/x",
        "abfs://LOGS/day/x",
        "abfs://logs:80/day/x",
        "abfs://logs@evil.example/day/x",
        "abfs://logs@examplestore.dfs.core.windows.net/day/x",
        "abfs://examplestore.dfs.core.windows.net/logs/day/x",
        "abfs://logs/day/x@examplestore.dfs.core.windows.net/y",
        "abfs://logs/day/x?comp=list",
        "abfs://logs/day/..%2fnight/x",
        "abfs://logs/day/a%2fb",
        "abfs://logs/day/a%5cb",
        "abfs://logs/day/a%252fb",
        "s3://Bucket/logs/a%2Fb",
        "sftp://example.org/pub/a%2fb",
        "abfs://evil@logs/day/x",
        "abfs://logs%40examplestore/day/x",
        "abfs://log\u017f/day/x",
        "abfss://logs/day/x",
        "hf://acme/logs/day/x",
        "hf://datasets/acme/logs/night/x",
        "hf://datasets/acme/logs/day",
        "hf://datasets/acme/logs2/day/x",
        "hf://datasets/acme/logs@dev/day/x",
        "hf://datasets/acme/logs@refs/pr/1/day/x",
        "hf://datasets/acme/logs@/day/x",
        "hf://datasets/acme/logs@main@dev/day/x",
        "hf://datasets/acme/logs/day/x@dev",
        "hf://datasets/acme/logs/day/x@dev/y",
        "hf://datasets/acme/logs@main%2F..%2Fmain/day/x",
        "hf://datasets/acme/logs@main/..%2F..%2Fother/x",
        "hf://datasets/acme/logs/day/../night/x",
        "hf://datasets/acme/logs/day/%2e%2e/night/x",
        "hf://datasets/acme/logs%2fday/x",
        "hf://datasets/acme%2flogs/day/x",
        "hf://datasets/acme/../acme/logs/day/x",
        "hf://datasets//acme/logs/day/x",
        "hf:///datasets/acme/logs/day/x",
        "hf://datasets@evil.example/acme/logs/day/x",
        "hf://huggingface.co/datasets/acme/logs/day/x",
        "hf://datasets/\uff41cme/logs/day/x",
        "hf://datasets/acme/logs/day/x?download=true",
        "hf://datasets/acme/logs/day/x#y",
        "hf://datasets/acme/logs/day/a b",
        "hf://datasets/acme/logs/day/x::https://evil.example/",
        "hf://acme/model/x",
        "hf://acme/model@v1.0.1/x",
        "hf://acme/model@v1%2e0/x",
        "hf://spaces/acme/app@refs/pr/1/app.py2",
        "hf://spaces/acme/app@refs/pr/12/app.py",
        "github://acme:logs@v1.0/x",
        "webhdfs://example.org/pub/x",
        "webhdfs://example.org:9871/pub/x",
        "webhdfs://user@example.org:9870/pub/x",
        "webhdfs://example.org:9870/pub/x?op=OPEN",
    ],
)
def test_what_does_not_is_not(url: str) -> None:
    """Deny by default, whatever another parser would make of it."""
    assert not permits(PREFIXES, url)


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        ("example.org/", "is not a URL"),
        ("https://example.org", "no path"),
        ("file:///srv/", "files.read"),
        ("file://localhost/srv/", "files.read"),
        ("https://example.org/?q=", "query"),
        ("https://u@example.org/", "is not a URL"),
        ("zip://example.org/pub/", "which is not read"),
        ("webdavs://example.org/pub/", "give it as https://"),
        ("S3://bucket", "no path"),
        ("s3://bucket/?prefix=logs/", "is not a URL"),
        ("abfs://logs", "no path"),
        ("abfs://logs@evil.example/", "is not a URL"),
        ("hf://", "is not a URL"),
        ("hf://datasets/acme/logs/day/../", "is not a URL"),
        ("hf://datasets/acme/logs/?x", "is not a URL"),
        ("github://acme:logs/", "raw.githubusercontent.com"),
    ],
)
def test_a_prefix_that_could_not_be_meant_is_refused_with_what_to_write(prefix: str, why: str) -> None:
    """A policy says what it permits, not what it may have meant."""
    with pytest.raises(ValidationError, match=why):
        checked({"urls": (prefix,)})


@pytest.mark.parametrize("scheme", NEVER_READ)
def test_a_scheme_that_reads_by_another_or_has_another_name_is_in_no_policy(scheme: str) -> None:
    """What fsspec knows of this machine, one thing by another, or by a second name."""
    with pytest.raises(ValidationError, match="which is not read; "):
        checked({"urls": (f"{scheme}://place/",)})
    assert not permits([f"{scheme}://place/"], f"{scheme}://place/x")


def test_a_policy_that_permits_more_urls_is_looser() -> None:
    """For a forked session."""
    outer = Policy(urls=PREFIXES)
    assert not loosened(Policy(urls=("https://example.org/data/part/",)), outer)
    assert not loosened(Policy(urls=("hf://datasets/acme/logs/day/part/", "abfs://logs/day/x")), outer)
    for wider in (
        "https://example.org/",
        "hf://datasets/acme/logs/",
        "hf://datasets/acme/logs@v2/day/",
        "abfs://logs/",
    ):
        assert "urls" in loosened(Policy(urls=(wider,)), outer)
