"""Which URLs a policy permits: what parsers take differently is refused."""

import pytest
from pydantic import ValidationError

from rlm_sandbox.policy import Policy, loosened
from rlm_sandbox.policy_urls import permits

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
    "webdavs://example.org/pub/",
    "smb://example.org/logs/",
)

NEVER_READ = (
    "abfs", "abfss", "adl", "asynclocal", "asyncwrapper", "blockcache", "box", "cached", "dask", "data",
    "dbfs", "dir", "dropbox", "dvc", "file", "filecache", "gcs", "gdrive", "generic", "git", "github", "gist",
    "hdfs", "hf", "jlab", "jupyter", "lakefs", "libarchive", "local", "memory", "oci", "ocilake", "oss",
    "pyscript", "reference", "root", "s3a", "simplecache", "ssh", "tar", "tosfs", "wandb",
    "webhdfs", "zip",
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
        "webdavs://example.org/pub/a%20b",
        "smb://example.org:445/logs/a",
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
        "abfss://logs/day/x",
        "sftp://example.org:2222/pub/x",
        "sftp://example.org/pub/x?username=root",
        "sftp://user@example.org/pub/x",
        "webdav://example.org/pub/x",
        "webdavs://example.org/pub/%2e%2e/x",
        "webdavs://example.org/pub/x?y",
        "smb://example.org:4450/logs/x",
        "smb://EXAMPLE;anna@example.org/logs/x",
        "smb://example.org/logs\\x",
        "smb://example.org/LOGS/x",
        "//example.org/data/x",
        "",
    ],
)
def test_what_does_not_is_not(url: str) -> None:
    """Deny by default, whatever another parser would make of it."""
    assert not permits(PREFIXES, url)


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        ("example.org/", "no URL"),
        ("https://example.org", "no path"),
        ("file:///srv/", "no URL"),
        ("file://localhost/srv/", "files.read"),
        ("https://example.org/?q=", "query"),
        ("https://u@example.org/", "no URL"),
        ("hdfs://example.org/pub/", "only http, https, ftp, sftp, webdav, webdavs, smb, s3, gs, az are"),
        ("S3://bucket", "no path"),
        ("s3://bucket/?prefix=logs/", "no URL"),
    ],
)
def test_a_prefix_that_could_not_be_meant_is_refused_with_what_to_write(prefix: str, why: str) -> None:
    """A policy says what it permits, not what it may have meant."""
    with pytest.raises(ValidationError, match=why):
        Policy(urls=(prefix,))


@pytest.mark.parametrize("scheme", NEVER_READ)
def test_a_scheme_that_is_not_on_the_list_is_in_no_policy(scheme: str) -> None:
    """All that fsspec knows besides: of this machine, one thing by another, or never tried."""
    with pytest.raises(
        ValidationError, match=r"reads this machine|only http, https, ftp, sftp, webdav, webdavs, smb, s3, gs, az are"
    ):
        Policy(urls=(f"{scheme}://place/",))
    assert not permits([f"{scheme}://place/"], f"{scheme}://place/x")


def test_a_policy_that_permits_more_urls_is_looser() -> None:
    """For a forked session."""
    outer = Policy(urls=PREFIXES)
    assert not loosened(Policy(urls=("https://example.org/data/part/",)), outer)
    assert "urls" in loosened(Policy(urls=("https://example.org/",)), outer)
