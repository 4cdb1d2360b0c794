"""The file of accounts: which of them a URL has, and what is said of one that is not as it must be."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rlm_kernel.confined.accounts import account_of, accounts_file
from rlm_kernel.contexts.errors import SourceError

Write = Callable[[str], None]


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Write:
    """Write the file; the variable PASSWORD holds one."""
    monkeypatch.setenv("RLM_KERNEL_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("PASSWORD", "from a variable")
    (tmp_path / "key").write_text("from a file\n")

    def write(text: str) -> None:
        accounts_file().write_text(text.replace("$DIR", str(tmp_path)))

    return write


def test_a_url_has_the_account_of_the_longest_prefix_that_covers_it(write: Write) -> None:
    """Compared as policies do, so that no password goes to another host, port or folder."""
    assert account_of("https://a.example/x/y") is None
    write(
        "'https://a.example/x/': {user: one, password_env: PASSWORD}\n"
        "'https://a.example/x/y/': {password_file: $DIR/key}\n"
    )
    found = account_of("https://a.example:443/x/z")
    assert found is not None
    assert (found.user, found.password) == ("one", "from a variable")
    nearer = account_of("https://a.example/x/y/z")
    assert nearer is not None
    assert (nearer.user, nearer.password) == (None, "from a file")
    for other in ("http://a.example/x/z", "https://a.example:444/x/z", "https://a.example/xz", "https://b.example/x/"):
        assert account_of(other) is None


def test_the_narrowest_prefix_goes_first_however_it_is_spelt(write: Write) -> None:
    """The same place may be written with more letters, and mean more."""
    write(
        "'https://a.example:443/x/': {user: wide, password_env: PASSWORD}\n"
        "'https://a.example/x/y/': {user: narrow, password_env: PASSWORD}\n"
        "'hf://models/acme/model@main/': {password_env: PASSWORD}\n"
        "'hf://acme/model/day/': {password_file: $DIR/key}\n"
    )
    web, hub = account_of("https://a.example/x/y/z"), account_of("hf://acme/model/day/x")
    assert (web and web.user, hub and hub.password) == ("narrow", "from a file")


@pytest.mark.parametrize(
    "url",
    [
        "abfs://logs/x",
        "abfs://logs@another.dfs.core.windows.net/x",
        "abfs://other@examplestore.dfs.core.windows.net/x",
        "abfss://logs@examplestore.dfs.core.windows.net/x",
        "abfs://logs@examplestore.dfs.core.windows.net@evil.example/x",
        "az://logs/x",
        "hf://acme/logs/x",
        "hf://datasets/acme/logs@dev/x",
        "hf://datasets/acme/logs2/x",
        "github://acme:logs@main/x",
        "github://acme:logs2/x",
        "github://acme:logs@HEAD@evil/x",
        "https://huggingface.co/datasets/acme/logs/resolve/main/x",
        "https://raw.githubusercontent.com/acme/logs/HEAD/x",
    ],
)
def test_an_account_of_one_place_is_of_no_other(write: Write, url: str) -> None:
    """Nor of the same place by another scheme, storage account or revision: each is named by itself."""
    write(
        "'abfs://logs@examplestore.dfs.core.windows.net/': {user: examplestore, password_env: PASSWORD}\n"
        "'hf://datasets/acme/logs/': {password_env: PASSWORD}\n"
        "'github://acme:logs/': {password_env: PASSWORD}\n"
    )
    assert account_of("abfs://logs@examplestore.dfs.core.windows.net/x") is not None
    assert account_of("hf://datasets/acme/logs@main/x") is not None
    assert account_of("github://acme:logs@HEAD/x") is not None
    assert account_of(url) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("'https://a.example/': {user: u}", "has no secret"),
        ("'https://a.example/': {password: topsecret}", "password: Extra inputs"),
        ("'https://a.example/': {password_env: PASSWORD, password_file: $DIR/key}", "two passwords"),
        ("'https://a.example/': {password_env: NOT_SET}", "account of https://a.example/ needs, is not set"),
        ("'https://a.example/': {password_file: $DIR/none}", "cannot be read (No such file"),
        ("'https://a.example/': {key_file: $DIR/key}", "for sftp"),
        ("'https://a.example': {password_env: PASSWORD}", "has no path"),
        ("'ftp://a.example/': {password_env: PASSWORD}", "has no `user`"),
        ("'gs://logs/': {user: u, password_env: PASSWORD}", "a token alone"),
        ("'hf://acme/model/': {user: u, password_env: PASSWORD}", "a token alone"),
        ("'github://acme:logs/': {user: u, password_env: PASSWORD}", "a token alone"),
        ("'hf://acme/': {password_env: PASSWORD}", "is not of the form hf://"),
        (
            "'abfs://logs@examplestore.dfs.core.windows.net/': {user: another, password_env: PASSWORD}",
            "names the storage account 'examplestore'",
        ),
        ("'s3://logs/': {password_env: PASSWORD}", "AWS_ACCESS_KEY_ID"),
        ("'smb://a.example/': {password_env: PASSWORD}", "has no `user`"),
        ("'hdfs://a.example/': {user: u, password_env: PASSWORD}", "is not read"),
        ("'https://a.example/': topsecret", "accounts.yaml"),
        ("- topsecret", "accounts.yaml"),
        ("'https://a.example/': {", "not valid YAML"),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_its_secrets(write: Write, text: str, said: str) -> None:
    """Deny by default; the message says what to mend, and repeats no value."""
    write(text)
    with pytest.raises(SourceError) as told:
        account_of("https://a.example/x")
    assert said in told.value.what
    assert told.value.advice.startswith(("mend that file", "mend it, or name", "start the daemon"))
    assert "topsecret" not in str(told.value)


def test_the_signature_in_a_shared_access_signature_is_hidden_however_it_is_written(write: Write) -> None:
    """A server may tell it decoded, or among other parts of a place."""
    write("'az://logs/': {password_file: $DIR/key}")
    (accounts_file().parent / "key").write_text("?sv=2021-08-06&sig=top%2Fsecret%3D&se=2027\n")
    found = account_of("az://logs/x")
    assert found is not None
    told = found.hidden("no: ?sv=2021-08-06&sig=top%2Fsecret%3D&se=2027, /x?sig=top%2Fsecret%3D, top/secret=")
    assert told == "no: [hidden], /x?sig=[hidden], [hidden]"


def test_the_example_of_the_page_is_a_file_of_accounts(write: Write) -> None:
    """Read as a whole, for a URL that it does not name."""
    [example] = re.findall(
        r"```text\n(.*?)```", (Path(__file__).parents[2] / "docs/contexts.md").read_text(), re.DOTALL
    )
    write(example)
    assert account_of("https://a.example/x") is None
