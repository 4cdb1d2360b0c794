"""The file of accounts: which of them a URL has, and what is said of one that is not as it must be."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rlm_contexts.errors import SourceError
from rlm_contexts.helpers.accounts import account_of, accounts_file, without_secrets

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
    )
    found = account_of("https://a.example/x/y/z")
    assert found is not None
    assert found.user == "narrow"


@pytest.mark.parametrize(
    "url",
    [
        "az://logs/x",
        "abfs://logs2/x",
        "hf://acme/logs/x",
        "hf://datasets/acme/logs@dev/x",
        "hf://datasets/acme/logs/x@dev/y",
        "hf://datasets/acme/logs2/x",
        "https://huggingface.co/datasets/acme/logs/resolve/main/x",
    ],
)
def test_an_account_of_one_place_is_of_no_other(write: Write, url: str) -> None:
    """Nor of the same place by another scheme or revision: each is named by itself."""
    write(
        "'abfs://logs/': {user: examplestore, password_env: PASSWORD}\n"
        "'hf://datasets/acme/logs/': {password_env: PASSWORD}\n"
    )
    assert account_of("abfs://logs/x") is not None
    assert account_of("hf://datasets/acme/logs/x") is not None
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
        ("'github://acme/logs/': {password_env: PASSWORD}", "is not read"),
        ("'s3://logs/': {password_env: PASSWORD}", "has no `user`"),
        ("'s3://logs/': {user: u, endpoint: 'https://a.example'}", "has no secret"),
        ("'s3://logs/': {endpoint: 'a.example:9000'}", "not an http or https URL"),
        ("'s3://logs/': {endpoint: 'https://u:topsecret@a.example'}", "not an http or https URL"),
        ("'https://a.example/': {endpoint: 'https://b.example', password_env: PASSWORD}", "for other schemes"),
        ("'s3://logs/': {options: {a: [topsecret]}}", "options.a"),
        ("'smb://a.example/': {password_env: PASSWORD}", "has no `user`"),
        ("'zip://a.example/': {user: u, password_env: PASSWORD}", "is not read"),
        ("'https://a.example/': topsecret", "accounts.yaml"),
        ("- topsecret", "accounts.yaml"),
        ("'https://a.example/': {", "not valid YAML"),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_its_secrets(write: Write, text: str, said: str) -> None:
    """Deny by default; the message says what to fix, and repeats no value."""
    write(text)
    with pytest.raises(SourceError) as told:
        account_of("https://a.example/x")
    assert said in told.value.what
    assert told.value.hint.startswith(("fix that file", "fix it, or name", "start the daemon"))
    assert "topsecret" not in str(told.value)


def test_the_signature_in_a_shared_access_signature_is_hidden_however_it_is_written(write: Write) -> None:
    """A server may tell it decoded, or among other parts of a place."""
    write("'az://logs/': {option_files: {sas_token: $DIR/key}, options: {account_name: examplestore}}")
    (accounts_file().parent / "key").write_text("?sv=2021-08-06&sig=top%2Fsecret%3D&se=2027\n")
    found = account_of("az://logs/x")
    assert found is not None
    told = without_secrets("no: ?sv=2021-08-06&sig=top%2Fsecret%3D&se=2027, /x?sig=top%2Fsecret%3D, top/secret=", found)
    assert told == "no: [hidden], /x?sig=[hidden], [hidden]"


def test_the_example_of_the_page_is_a_file_of_accounts(write: Write) -> None:
    """Read as a whole, for a URL that it does not name."""
    [example] = re.findall(
        r"```text\n(.*?)```", (Path(__file__).parents[3] / "docs/contexts.md").read_text(), re.DOTALL
    )
    write(example)
    assert account_of("https://a.example/x") is None
