"""The configured models: the file ``models.yaml`` in the configuration folder, and the environment.

The file::

    default: small
    models:
      small: {provider: openai, model: gpt-5-mini}
      local: {provider: openai, model: qwen3, base_url: "http://127.0.0.1:8000/v1"}
      large: {provider: anthropic, model: claude-sonnet-4-5, api_key_file: ~/.keys/anthropic}

``RLM_KERNEL_MODEL`` names one of them as the default, or describes a model itself: ``openai:gpt-5-mini``. A key is in a
file or in an environment variable, never in ``models.yaml``; it is read when an endpoint is first used.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from rlm_client.models.errors import ModelMisconfigured
from rlm_sandbox.errors import PolicyFileError

__all__ = ["Endpoint", "ModelSettings", "load_settings", "settings_file"]

VARIABLE = "RLM_KERNEL_MODEL"
OWN = "environment"
"""The name of the model that the variable itself describes."""
_KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_URL_VARIABLES = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,63}")


class _Section(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", strict=True, hide_input_in_errors=True, defer_build=True
    )


class Endpoint(_Section):
    """One model at one endpoint."""

    provider: Literal["openai", "anthropic", "replay"] = Field(
        description="openai (chat completions, which many servers speak), anthropic (messages) or replay (a recording)."
    )
    model: str = Field(min_length=1, description="The model, as the endpoint names it; for replay, the file.")
    base_url: str | None = Field(
        None,
        description="The URL of the endpoint; default: OPENAI_BASE_URL or ANTHROPIC_BASE_URL, else the provider's own.",
    )
    api_key_env: str | None = Field(None, description="The variable that holds the key, if not the provider's own.")
    api_key_file: str | None = Field(None, description="The file that holds the key; it goes before a variable.")
    concurrency: int = Field(16, ge=1, le=256, description="Requests at the same time.")
    timeout_seconds: float = Field(120.0, gt=0, description="Seconds without any response from the endpoint.")
    retries: int = Field(4, ge=0, le=20, description="Further attempts after a temporary failure, with growing pauses.")
    max_tokens: int = Field(4096, ge=1, description="Most tokens of an answer, unless the request says otherwise.")
    native_schema: bool = Field(
        False, description="Whether the endpoint itself takes the JSON schema of a structured answer."
    )
    input_price: float = Field(0.0, ge=0, description="US dollars for a million tokens in.")
    output_price: float = Field(0.0, ge=0, description="US dollars for a million tokens out.")

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, url: str | None) -> str | None:
        if url is not None and not _is_server(url):
            raise ValueError("is not the URL of a server; write it like https://api.example.com/v1")
        if url is not None and (urlsplit(url).username or urlsplit(url).password):
            raise ValueError("holds a password; put it into a file and name that as api_key_file")
        return url

    def url(self) -> str | None:
        """Return the base URL; None is the provider's own.

        Raises:
            ModelMisconfigured: the variable holds something else.
        """
        given = os.environ.get(_URL_VARIABLES.get(self.provider, "")) or None
        if self.base_url is None and given is not None and not _is_server(given):
            wrong = f"{self.url_setting()} is {given[:80]!r}, which is not the URL of a server"
            raise ModelMisconfigured(f"{wrong}; write it like http://127.0.0.1:8000/v1")
        return self.base_url or given

    def url_setting(self) -> str:
        """Name the setting that says where the endpoint is, or that could say it."""
        variable = _URL_VARIABLES.get(self.provider, "")
        return variable if self.base_url is None else f"base_url in {settings_file()}"

    def where(self) -> str:
        """Name the model and its endpoint for messages."""
        return f"{self.model} of {self.address() or self.provider}"

    def address(self) -> str:
        """Return the host of the endpoint, with its port if it names one; empty for the provider itself."""
        parts = urlsplit(self.url() or "")
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or ""

    def missing(self) -> str:
        """Return the missing package, if any; raises what `key` does."""
        if self.provider == "replay":
            return ""
        self.key()
        absent = [name for name in (self.provider, "aiohttp") if importlib.util.find_spec(name) is None]
        return f"the package {absent[0]} is not installed" if absent else ""

    def key(self) -> str:
        """Return the key; the user's own server without a configured key gets none.

        Raises:
            ModelMisconfigured: there is none, or its file cannot be read.
        """
        if self.api_key_file is not None:
            path = Path(self.api_key_file).expanduser()
            try:
                key = path.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ModelMisconfigured(f"the key file {path} cannot be read: {error}") from None
        elif self.api_key_env is None and self.base_url is not None:
            # The user's own server needs no key, and must not get another's; the libraries require a string.
            return "none"
        else:
            key = os.environ.get(self.api_key_env or _KEY_VARIABLES[self.provider], "").strip()
        if not key and self.api_key_env is None and self.api_key_file is None and self.url() is not None:
            return "none"
        if not key:
            place = self.api_key_file or f"the variable {self.api_key_env or _KEY_VARIABLES[self.provider]}"
            raise ModelMisconfigured(
                f"there is no key for {self.where()}: {place} is empty; see `rlm-kernel docs queries`"
            )
        return key


class ModelSettings(_Section):
    """All usable models, by the names that code uses."""

    default: str = Field(description="The model that answers when none is named.")
    models: dict[str, Endpoint] = Field(min_length=1, description="Models by name.")

    @model_validator(mode="after")
    def _names(self) -> ModelSettings:
        for name in self.models:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name[:80]!r} is not a valid model name; write a word such as `small`")
        if self.default not in self.models:
            raise ValueError(f"default: there is no model {self.default!r}; configured are {', '.join(self.models)}")
        return self

    def find(self, name: str | None) -> tuple[str, Endpoint]:
        """Return the model of that name, or the default, with its name. A recording as default replaces all.

        Raises:
            ModelMisconfigured: there is none of that name.
        """
        name = self.default if name is None or self.models[self.default].provider == "replay" else name
        found = self.models.get(name)
        if found is None:
            raise ModelMisconfigured(f"no model {name[:80]!r} is configured; configured are {', '.join(self.models)}")
        return name, found


def _is_server(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def settings_file() -> Path:
    """Return the configuration file, which need not exist."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    return Path(os.environ.get("RLM_KERNEL_CONFIG_DIR") or home / "rlm-kernel") / "models.yaml"


def load_settings() -> ModelSettings | None:
    """Read the configuration; None when no model is configured.

    Raises:
        ModelMisconfigured: the file or variable is invalid; the message names the place.
    """
    file, wanted = settings_file(), os.environ.get(VARIABLE, "").strip()
    found = _read(file) if file.is_file() else None
    if not wanted:
        return found
    if found is not None and wanted in found.models:
        return found.model_copy(update={"default": wanted})
    provider, _, model = wanted.partition(":")
    known = dict(found.models) if found is not None else {}
    values = {"default": OWN, "models": {**known, OWN: {"provider": provider, "model": model}}}
    try:
        return ModelSettings.model_validate(values)
    except ValidationError:
        names = f"a model of {file}" if known else "of the form openai:MODEL, anthropic:MODEL or replay:FILE"
        raise ModelMisconfigured(f"{VARIABLE} is {wanted[:80]!r}, which is not {names}") from None


def _read(file: Path) -> ModelSettings:
    from rlm_sandbox.policy.yaml_document import read_document  # YAML, which few daemons read

    try:
        document = read_document(file)
        return ModelSettings.model_validate(document.values)
    except PolicyFileError as error:
        raise ModelMisconfigured(str(error)) from None
    except ValidationError as error:
        said = "; ".join(map(_told, error.errors(include_url=False)))
        raise ModelMisconfigured(f"{file}: {said} (`rlm-kernel docs queries` lists the fields)") from None


def _told(detail: ErrorDetails) -> str:
    from rlm_sandbox.policy.yaml_document import dotted, message_of

    where = dotted(tuple(detail["loc"]))
    said = "there is no such field" if detail["type"] == "extra_forbidden" else message_of(detail)
    return f"{where}: {said}" if where else said
