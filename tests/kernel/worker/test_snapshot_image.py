"""Reading an image from a file that somebody else may still hold."""

import fcntl
import os
from collections.abc import Iterator

import pytest

from rlm_kernel.worker.snapshots.image import Image, read_images
from rlm_kernel.worker.snapshots.records import Tables

SEALS = (0, fcntl.F_SEAL_WRITE, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK)


@pytest.fixture
def file() -> Iterator[int]:
    """A file in memory that can be sealed."""
    descriptor = os.memfd_create("image", os.MFD_ALLOW_SEALING)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("seals", SEALS)
def test_a_file_that_can_change_is_copied_before_it_is_read(file: int, seals: int) -> None:
    """What has been checked in it must be what is unpickled; one that nobody can change is not copied."""
    data = b"".join(Image(Tables(), [b"checked"]).parts())
    os.write(file, data)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    (image,) = read_images(file, [len(data)])
    assert isinstance(image, Image)
    (values,) = image.values
    assert isinstance(values, memoryview)
    assert isinstance(values.obj, bytes) == (seals != SEALS[-1])
    if not seals & fcntl.F_SEAL_WRITE:
        os.pwrite(file, b"another", len(data) - len(b"checked"))
    assert values == b"checked"
