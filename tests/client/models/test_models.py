"""Asking a language model: both protocols over real HTTP, what is tried again, and what each failure is called."""

import asyncio
import os
import re
import socket
import ssl
import sys
from pathlib import Path

import pytest
from model_endpoint import Reply
from preloaded import REAL_STARTS
from waiting import SECONDS, until

from rlm_client.models.errors import ModelMisconfigured, ModelRefused, ModelUnavailable
from rlm_client.models.interface import Usage
from rlm_client.models.router import Models
from rlm_client.models.settings import load_settings
from rlm_ipc.extras import extra_command

pytestmark = pytest.mark.anyio

ASKED = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "how many?"}]


@pytest.fixture(params=["openai", "anthropic"])
def configured(request, endpoint, isolation):
    """Write a configuration of the endpoint in either protocol: ``configured(retries=0)``."""

    def write(on_retry=None, **fields):
        endpoint.configure(isolation.config, provider=request.param, **fields)
        return Models(load_settings(), on_retry)

    return write


async def test_an_answer_comes_with_what_it_has_used(configured, endpoint) -> None:
    """K-22: the text, the tokens, and the cost by the prices of the configuration."""
    endpoint.script(Reply("seven", tokens=(1_000_000, 2_000)))
    async with configured(input_price=0.5, output_price=10.0) as models:
        answer = await models.complete(ASKED, max_tokens=50)
    assert (answer.text, answer.finish, answer.model) == ("seven", "stop", "scripted")
    assert answer.usage == Usage(1_000_000, 2_000, 0.52)
    (asked,) = endpoint.requests
    assert asked.messages == ASKED
    assert (asked.body["max_tokens"], asked.streamed) == (50, False)
    assert "sk-secret-of-the-test" in asked.headers.get("authorization", "") + asked.headers.get("x-api-key", "")


async def test_an_endpoint_that_does_not_stream_is_read_all_the_same(configured, endpoint) -> None:
    """K-22: its answer is one piece, asked for once."""
    endpoint.script(Reply("one two", whole=True, tokens=(5, 2)))
    pieces = []
    async with configured() as models:
        answer = await models.complete(ASKED, on_text=pieces.append)
    assert (pieces, answer.text, answer.usage) == (["one two"], "one two", Usage(5, 2))
    assert len(endpoint.requests) == 1


async def test_an_answer_is_streamed_piece_by_piece(configured, endpoint) -> None:
    """K-22: the pieces arrive in their order, and the whole counts as one that is not streamed does."""
    endpoint.script(Reply("one two three four", size=4, tokens=(5, 4)), Reply("cut", finish="length"))
    pieces = []
    async with configured() as models:
        answer = await models.complete(ASKED, on_text=pieces.append)
        short = await models.complete(ASKED, on_text=pieces.append)
    assert pieces == ["one ", "two ", "thre", "e fo", "ur", "cut"]
    assert (answer.text, answer.usage) == ("one two three four", Usage(5, 4))
    assert short.finish == "length"


async def test_a_character_that_comes_in_halves_is_put_together(configured, endpoint) -> None:
    """K-22: as endpoints send it that cut their pieces in UTF-16; a half alone never gets into the next request."""
    endpoint.script(Reply("a \ud83d\ude00 \ud83d.", size=1), Reply("heard"))
    async with configured() as models:
        answer = await models.complete(ASKED, on_text=lambda _: None)
        assert answer.text == "a \U0001f600 \ufffd."
        again = [*ASKED, {"role": "assistant", "content": answer.text}, {"role": "user", "content": "?"}]
        assert (await models.complete(again)).text == "heard"


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_what_may_pass_is_tried_again(configured, endpoint, status) -> None:
    """K-22: too many requests and faults of the endpoint; it may say how long to wait."""
    again = Reply(status=status, headers={"retry-after-ms": "5"})
    endpoint.script(again, again, Reply("at last"))
    async with configured(retries=2) as models:
        assert (await models.complete(ASKED)).text == "at last"
    assert len(endpoint.requests) == 3


async def test_what_does_not_pass_is_told_with_what_the_endpoint_said(configured, endpoint) -> None:
    """K-22: after the last attempt; the message names the endpoint and holds no key."""
    endpoint.script(*[Reply("overloaded today", status=503, headers={"retry-after-ms": "5"})] * 2)
    async with configured(retries=1) as models:
        with pytest.raises(
            ModelUnavailable, match=r"scripted of 127.0.0.1:\d+ gave no answer: .*overloaded today"
        ) as caught:
            await models.complete(ASKED)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "error", "said"),
    [
        (Reply("bad key", status=401), ModelMisconfigured, r"correct the model, base_url in \S+ or the key"),
        (Reply("no such model", status=404), ModelMisconfigured, "no such model"),
        (Reply("too long", status=400), ModelRefused, "too long"),
        (Reply("I must not", finish="refused"), ModelRefused, "declined to answer: I must not"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_what_will_not_pass_is_not_tried_again(configured, endpoint, reply, error, said, streamed) -> None:
    """K-22: each failure is of the kind that tells what helps."""
    endpoint.script(reply)
    async with configured() as models:
        with pytest.raises(error, match=said):
            await models.complete(ASKED, on_text=[].append if streamed else None)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("fault", ["", "overloaded"])
async def test_a_stream_that_breaks_off_is_asked_for_again(configured, endpoint, fault) -> None:
    """K-22: the answer is whole or none; the pieces of the new one follow those of the old one."""
    endpoint.script(Reply("a whole answer", cut=2, fault=fault), Reply("a whole answer"))
    pieces = []
    async with configured(retries=1) as models:
        assert (await models.complete(ASKED, on_text=pieces.append)).text == "a whole answer"
    assert "".join(pieces).endswith("a whole answer")
    assert len(endpoint.requests) == 2


async def test_an_answer_that_always_breaks_off_is_no_answer(configured, endpoint) -> None:
    """K-22: streamed or not, half an answer is never taken for a whole one."""
    endpoint.reply = lambda _: Reply("a whole answer", cut=2)
    async with configured(retries=0) as models:
        for on_text in (None, [].append):
            with pytest.raises(ModelUnavailable):
                await models.complete(ASKED, on_text=on_text)


@pytest.mark.parametrize("streamed", [False, True])
async def test_silence_ends_at_the_time_limit(configured, endpoint, streamed) -> None:
    """K-22: who is slow at the first question is so at the next; the message says what to set, and where."""
    endpoint.reply = lambda _: Reply(delay=60)
    async with configured(timeout_seconds=0.2) as models:
        said = r"did not answer within 0\.2 s; .*raise timeout_seconds of the model in /.*models\.yaml"
        with pytest.raises(ModelUnavailable, match=said):
            await models.complete(ASKED, on_text=[].append if streamed else None)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_stream_that_falls_silent_has_broken_off(configured, streamed) -> None:
    """K-22: after its head nothing comes; the limit ends that too."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(STREAM if streamed else STREAM.replace(b"text/event-stream", b"application/json"))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with configured(retries=0, base_url=url, timeout_seconds=1.0) as models:
            with pytest.raises(ModelUnavailable, match=r"broke off|did not answer within"):
                await models.complete(ASKED, on_text=[].append if streamed else None)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_server_that_is_not_there_is_no_slow_one(configured, streamed) -> None:
    """K-22: nobody has started it, or its name is wrong; that is told at the first attempt, with host and port."""
    again = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with configured(again.append, base_url=f"http://{address}/v1") as models:
            with pytest.raises(ModelUnavailable, match=f"nothing listens at {address}; start the server, or correct"):
                await models.complete(ASKED, on_text=[].append if streamed else None)
    async with configured(again.append, base_url="http://model.invalid/v1") as models:
        with pytest.raises(ModelUnavailable, match=r"the host model\.invalid is not known; correct base_url in /"):
            await models.complete(ASKED, on_text=[].append if streamed else None)
    assert again == []


async def test_a_server_that_has_answered_is_waited_for(configured, endpoint) -> None:
    """K-22: it is being started anew, maybe, and a long run is worth the wait; each attempt is told."""
    again: list[str] = []
    server = await endpoint.serve()
    endpoint.script(Reply("here", headers={"connection": "close"}))
    async with configured(again.append, retries=1) as models:
        assert (await models.complete(ASKED)).text == "here"
        server.close()
        await server.wait_closed()
        with pytest.raises(ModelUnavailable, match="nothing listens at"):
            await models.complete(ASKED)
    assert len(again) == 1
    assert re.fullmatch(r"nothing listens at 127.0.0.1:\d+; attempt 2 of 2 in \d s", again[0])


@pytest.mark.parametrize(
    ("headers", "said"),
    [({"x-should-retry": "false"}, "asking again is of no use"), ({"retry-after": "3600"}, "asked again in 3600 s")],
)
async def test_an_endpoint_may_say_that_it_is_not_to_be_asked_again(configured, endpoint, headers, said) -> None:
    """K-22: a quota that is used up until tomorrow is told now."""
    endpoint.script(Reply("no money left", status=429, headers=headers))
    async with configured() as models:
        with pytest.raises(ModelUnavailable, match=f"no money left; it .*{said}"):
            await models.complete(ASKED)
    assert len(endpoint.requests) == 1


async def test_a_proxy_of_the_environment_is_asked(configured, endpoint, monkeypatch) -> None:
    """K-22: and none where the environment says that there is to be none."""
    monkeypatch.setenv("HTTP_PROXY", endpoint.url.removesuffix("/v1"))
    async with configured(retries=0, base_url="http://model.invalid/v1") as models:
        assert (await models.complete(ASKED)).text == "echo: how many?"
    monkeypatch.setenv("NO_PROXY", "model.invalid")
    async with configured(retries=0, base_url="http://model.invalid/v1") as models:
        with pytest.raises(ModelUnavailable):
            await models.complete(ASKED)


async def test_a_server_that_nobody_vouches_for_is_told_nothing(endpoint, isolation, certificate, monkeypatch) -> None:
    """K-22: its certificate is held against whom the environment trusts before any key leaves."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    server = await endpoint.serve(tls)
    async with server:
        for provider in ("openai", "anthropic"):
            url = endpoint.url.replace("http://127.0.0.1", "https://localhost")
            url = url if provider == "openai" else url.removesuffix("/v1")
            endpoint.configure(isolation.config, provider=provider, retries=0, base_url=url)
            async with Models(load_settings()) as models:
                with pytest.raises(ModelUnavailable):
                    await models.complete(ASKED)
            assert endpoint.requests == []
            with monkeypatch.context() as patch:
                patch.setenv("SSL_CERT_FILE", str(certificate))
                async with Models(load_settings()) as models:
                    assert (await models.complete(ASKED)).text == "echo: how many?"
            endpoint.requests.clear()


async def test_another_server_is_a_mistake_of_the_configuration(configured, endpoint) -> None:
    """K-22: a page where an answer should be says that the base URL is wrong."""
    endpoint.reply = lambda _: Reply("<h1>hello</h1>", page=True)
    async with configured() as models:
        for on_text in (None, [].append):
            with pytest.raises(ModelMisconfigured, match="correct base_url"):
                await models.complete(ASKED, on_text=on_text)


async def test_a_missing_library_comes_with_the_command_that_installs_it(configured, monkeypatch) -> None:
    """K-22: into the environment of this program, whoever has made that."""
    for name in ("openai", "anthropic"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("openai_chat", "anthropic_messages"):
        monkeypatch.delitem(sys.modules, f"rlm_client.models.{name}", raising=False)
    async with configured() as models:
        with pytest.raises(ModelMisconfigured) as told:
            await models.complete(ASKED)
    assert str(told.value).endswith(f" is not installed; {extra_command('providers')}")


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("bytes_", "scheme", "kind", "said"),
    [
        (b"", "http", ModelUnavailable, "closes the connection without an answer"),
        (b"", "https", ModelUnavailable, "makes no encrypted connection; correct base_url"),
        (STREAM + b"event: message_start\ndata: hello\n\n", "http", ModelMisconfigured, "answers, but not with"),
        (STREAM + b"event: message_start\ndata: \xff\n\n", "http", ModelMisconfigured, "answers, but not with"),
    ],
)
async def test_a_server_of_another_kind_is_told_as_such(configured, bytes_, scheme, kind, said) -> None:
    """K-22: it hangs up, speaks no TLS, or streams what is no JSON: none of these is a slow answer, or our defect."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(bytes_ if scheme == "http" else b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        url = f"{scheme}://{address}/v1"
        async with configured(retries=0, base_url=url) as models:
            with pytest.raises(kind, match=said):
                await models.complete(ASKED, on_text=[].append)


async def test_no_more_requests_than_permitted_are_under_way(configured, endpoint) -> None:
    """K-22: the others wait their turn."""
    endpoint.reply = lambda asked: Reply(asked.prompt, together=3, delay=0.02)
    async with configured(concurrency=3) as models:
        asked = [models.complete([{"role": "user", "content": str(number)}]) for number in range(12)]
        answers = await asyncio.gather(*asked)
    assert [answer.text for answer in answers] == [str(number) for number in range(12)]
    assert endpoint.most_at_once == 3


async def test_a_request_can_be_given_up(configured, endpoint) -> None:
    """K-22: its turn is free at once, and the next request is answered."""
    endpoint.script(Reply(delay=60), Reply("next"))
    async with configured(concurrency=1) as models:
        task = asyncio.create_task(models.complete(ASKED))
        await until(lambda: endpoint.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await models.complete(ASKED)).text == "next"


@pytest.mark.parametrize("native", [False, True])
async def test_the_form_of_an_answer_is_told(configured, endpoint, native) -> None:
    """K-22: in words always; as the endpoint's own option where the configuration says that it has one."""
    schema = {"type": "object", "properties": {"count": {"type": "integer"}}}
    async with configured(native_schema=native) as models:
        await models.complete(ASKED, schema=schema)
    (asked,) = endpoint.requests
    assert asked.prompt.startswith("how many?")
    assert '"count": {"type": "integer"}' in asked.prompt
    given = asked.body.get("response_format", {}).get("json_schema", asked.body.get("output_config", {}).get("format"))
    assert (given or {}).get("schema") == (schema if native else None)


@pytest.mark.parametrize(
    "reply",
    [Reply("12345", counted=False), Reply("12345", tokens=(-5000, 2)), Reply("12345", tokens=(5, 10**20))],
    ids=["nothing", "less than none", "more than fit the database"],
)
async def test_tokens_that_nobody_counted_are_guessed_and_said_to_be(endpoint, isolation, reply) -> None:
    """K-22: some servers do not tell, or tell what no count can be; a budget needs a number all the same."""
    endpoint.reply = lambda _: reply
    endpoint.configure(isolation.config)
    async with Models(load_settings()) as models:
        for on_text in (None, [].append):
            answer = await models.complete(ASKED, on_text=on_text)
            assert answer.usage == Usage(5, 2, estimated=True)


async def test_a_name_chooses_the_model(endpoint, isolation) -> None:
    """K-22: only what is configured can be asked."""
    endpoint.configure(isolation.config)
    async with Models(load_settings()) as models:
        assert (await models.complete(ASKED, model="test")).model == "scripted"
        with pytest.raises(ModelMisconfigured, match="no model 'gpt-9' is configured; configured are test"):
            await models.complete(ASKED, model="gpt-9")


async def test_a_run_is_recorded_and_answered_from_the_file_without_a_network(
    configured, endpoint, monkeypatch, tmp_path
) -> None:
    """K-22: the same requests have the same answers in their order; what was not asked then fails."""
    file = tmp_path / "run.jsonl"
    monkeypatch.setenv("RLM_KERNEL_RECORD", str(file))
    endpoint.script(Reply("one"), Reply("two"), Reply("3"))
    schema = {"type": "integer"}
    async with configured() as models:
        first = [(await models.complete(ASKED)).text for _ in range(2)]
        structured = await models.complete(ASKED, schema=schema, model="test")
    assert "secret" not in file.read_text()
    monkeypatch.delenv("RLM_KERNEL_RECORD")
    monkeypatch.setenv("RLM_KERNEL_MODEL", f"replay:{file}")
    pieces = []
    async with Models(load_settings()) as replayed:
        assert [(await replayed.complete(ASKED, on_text=pieces.append)).text for _ in range(3)] == [*first, "two"]
        assert await replayed.complete(ASKED, schema=schema, model="any") == structured
        with pytest.raises(ModelRefused, match="has no answer to this: else"):
            await replayed.complete([{"role": "user", "content": "else"}])
    assert pieces == ["one", "two", "two"]
    assert len(endpoint.requests) == 3


async def test_no_key_reaches_the_processes_that_run_code(host_environment) -> None:
    """K-22: the supervisor, and with it everything below, is started without what looks like a secret."""
    assert "OPENAI_API_KEY" not in host_environment
    assert "MY_OWN_TOKEN" not in host_environment
    assert host_environment["PATH"] == os.environ["PATH"]


@pytest.fixture
async def host_environment(monkeypatch):
    """The environment of a supervisor that is started while there are keys in ours."""
    from rlm_kernel.supervisor_client import SupervisorClient

    for name in ("OPENAI_API_KEY", "MY_OWN_TOKEN"):
        monkeypatch.setenv(name, "sk-secret")
    monkeypatch.setenv(REAL_STARTS, "1")
    supervisor = await SupervisorClient.connect()
    entries = Path(f"/proc/{supervisor.pid}/environ").read_text(encoding="utf-8").split("\0")
    yield dict(entry.split("=", 1) for entry in entries if entry)
    os.kill(supervisor.pid, 15)
    async with asyncio.timeout(SECONDS):
        await supervisor.wait_gone()
