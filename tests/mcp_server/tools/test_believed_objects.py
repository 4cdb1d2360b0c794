"""What lays strings over memory believes a text, its lines and its map: code cannot have them say otherwise."""

import secrets

import pytest

pytestmark = pytest.mark.anyio
TEXT = "\n".join(str(number) for number in range(200_000))
ATTEMPTS = {
    "a fact": "log.text.facts = 5",
    "the bytes": "log.text.view = bytearray(9)",
    "the string": "del log.text.content",
    "by name": "setattr(log.text, 'facts', 5)",
    "past the class": "object.__setattr__(log.text, 'facts', 5)",
    "of the lines": "log['lines'].start = 5",
    "the size of the map": "log.text.view.obj.owner.size = 10**10",
    "the dictionary of the map": "vars(log.text.view.obj.owner)['size'] = 10**10",
    "another text over it": """
import dataclasses
facts = dataclasses.replace(log.text.facts, chars=10**9)
type(log.text)(facts, log.text.index, data=log.text.view.obj.owner).content
""",
}


async def test_code_cannot_make_a_text_lie(attach) -> None:
    """Each attempt is an error by itself, and the text is as it was."""
    async with attach(f"s{secrets.token_hex(4)}") as agent:
        await agent("load_context", name="log", content=TEXT)
        for what, code in ATTEMPTS.items():
            answer = await agent.run(code)
            assert not answer["success"], what
        answer = await agent.run("log['content'].count('9'), log['lines'][7]")
        assert answer["result"] == str((TEXT.count("9"), "7"))
        await agent("end_session")
