"""The configuration of language models: the file, the environment, the keys, and what is said when it is wrong."""

import json
from pathlib import Path

import pytest

from rlm_client.models.errors import ModelMisconfigured
from rlm_client.models.router import open_models
from rlm_client.models.settings import Endpoint, load_settings, settings_file


@pytest.fixture
def write(isolation):
    """Write the file."""
    return (isolation.config / "models.yaml").write_text


def test_without_configuration_there_is_no_model(isolation, monkeypatch) -> None:
    """A key alone is nobody's consent to spend money with it; the message says what to do."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    assert load_settings() is None
    with pytest.raises(ModelMisconfigured, match="set RLM_KERNEL_MODEL=openai:MODEL"):
        open_models()


def test_the_variable_alone_is_enough(monkeypatch) -> None:
    """The usual beginning needs no file."""
    monkeypatch.setenv("RLM_KERNEL_MODEL", "anthropic:claude-x")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-a")
    settings = load_settings()
    found = settings.find(None)[1]
    assert (found.provider, found.model, found.key(), found.url()) == ("anthropic", "claude-x", "sk-a", None)


def test_the_variable_chooses_among_the_models_of_the_file(write, monkeypatch) -> None:
    """By a name of the file, or as a model of its own beside them."""
    write("default: a\nmodels:\n  a: {provider: openai, model: m1}\n  b: {provider: openai, model: m2}\n")
    assert load_settings().find(None)[1].model == "m1"
    monkeypatch.setenv("RLM_KERNEL_MODEL", "b")
    assert load_settings().find(None)[1].model == "m2"
    monkeypatch.setenv("RLM_KERNEL_MODEL", "openai:m3")
    assert [load_settings().find(name)[1].model for name in (None, "a")] == ["m3", "m1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "default: a\nmodels: {a: {provider: openai, model: m, api_key: sk-123}}",
            "models.a.api_key: there is no such field (",
        ),
        (
            "default: b\nmodels: {a: {provider: openai, model: m}}",
            "models.yaml: default: there is no model 'b'; configured are a (",
        ),
        ("default: a\nmodels: {a: {provider: other, model: m}}", "models.a.provider"),
        ("default: a\nmodels: {a: {provider: openai, model: m, base_url: 'ftp://x'}}", "models.a.base_url"),
        ("default: a\nmodels: {a: {provider: openai, model: m, base_url: 'http://u:p@x'}}", "holds a password"),
        ("default: a\nmodels: {", "not valid YAML"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_without_what_stands_there(write, text, said) -> None:
    """A key that was put into the file by mistake is not repeated."""
    write(text)
    with pytest.raises(ModelMisconfigured) as caught:
        load_settings()
    assert said in str(caught.value)
    assert "sk-123" not in str(caught.value)


def test_a_variable_that_names_nothing_is_refused(monkeypatch, write) -> None:
    """It says what it may name."""
    monkeypatch.setenv("RLM_KERNEL_MODEL", "gpt")
    with pytest.raises(ModelMisconfigured, match="of the form openai:MODEL"):
        load_settings()
    write(json.dumps({"default": "a", "models": {"a": {"provider": "openai", "model": "m"}}}))
    with pytest.raises(ModelMisconfigured, match="not a model of"):
        load_settings()


def test_a_key_goes_only_where_it_is_meant_for(monkeypatch, tmp_path) -> None:
    """The provider's own key is not sent to another server unless the configuration says so."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    own = {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    assert Endpoint(provider="openai", model="m").key() == "sk-openai"
    assert Endpoint(**own).key() == "none"
    assert Endpoint(**own, api_key_env="OPENAI_API_KEY").key() == "sk-openai"
    (tmp_path / "key").write_text("sk-file\n")
    assert Endpoint(**own, api_key_file=str(tmp_path / "key")).key() == "sk-file"


def test_a_missing_key_is_told_with_its_place(tmp_path) -> None:
    """Before anything is asked."""
    with pytest.raises(ModelMisconfigured, match="variable OPENAI_API_KEY is empty"):
        Endpoint(provider="openai", model="m").key()
    with pytest.raises(ModelMisconfigured, match="cannot be read"):
        Endpoint(provider="openai", model="m", api_key_file=str(tmp_path / "none")).key()


def test_a_server_of_the_environment_needs_no_key_but_an_address(monkeypatch) -> None:
    """A newcomer's own server: the variable stands for `base_url`, and messages name it as what to correct."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    found = Endpoint(provider="openai", model="m")
    assert (found.key(), found.url_setting()) == ("none", "OPENAI_BASE_URL")
    named = Endpoint(provider="openai", model="m", base_url="http://127.0.0.1:2/v1").url_setting()
    assert named == f"base_url in {settings_file()}"
    with pytest.raises(ModelMisconfigured, match="variable OWN is empty"):
        Endpoint(provider="openai", model="m", api_key_env="OWN").key()
    monkeypatch.setenv("OPENAI_BASE_URL", "127.0.0.1:1/v1")
    with pytest.raises(
        ModelMisconfigured, match=r"OPENAI_BASE_URL is '127\.0\.0\.1:1/v1', which is not the URL of a server"
    ):
        found.key()


def test_the_page_shows_a_configuration_that_is_one(write) -> None:
    """And it names every field with its default and meaning."""
    page = (Path(__file__).parents[3] / "docs/queries.md").read_text()
    write(next(block for block in page.split("```text\n")[1:]).split("```")[0])
    assert load_settings().find("large")[1].timeout_seconds == 300
    missing = [name for name, field in Endpoint.model_fields.items() if f"| `{name}` |" not in page]
    assert missing == []
    assert [
        field.description for field in Endpoint.model_fields.values() if f"| {field.description} |" not in page
    ] == []
