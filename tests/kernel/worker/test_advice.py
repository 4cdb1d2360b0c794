"""What the last line of an error adds when the error itself does not say what to do."""

import pytest

pytestmark = pytest.mark.anyio
LEFT_OUT = ". Sessions have os without it, for safety: dir(os) lists what there is"


async def last_line(run, code: str) -> str:
    return (await run(code)).error.traceback[-1]


async def test_what_a_session_lacks_of_a_module_is_not_called_unknown(run) -> None:
    """A model knows `os.system`, and would look for its own mistake."""
    said = await last_line(run, "import os\nos.system('ls')")
    assert said == f"AttributeError: module 'os' has no attribute 'system'{LEFT_OUT}"
    listed = await run("'system' in dir(os), 'getcwd' in dir(os)")
    assert listed.result == "(False, True)"


@pytest.mark.parametrize(
    "code",
    [
        "os.no_such_name",
        "raise AttributeError('made up', name='getcwd', obj=os)",
        "raise AttributeError('made up', name=5, obj=os)",
        "raise AttributeError('made up', name='system', obj='os')",
        "class Own(AttributeError): pass\nraise Own('made up', name='system', obj=os)",
    ],
)
async def test_other_errors_get_no_advice(run, code: str) -> None:
    """A name that no such module has, one that the session has, and what code makes up."""
    said = await last_line(run, f"import os\n{code}")
    assert "Sessions have" not in said
