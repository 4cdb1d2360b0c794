"""The errors of language models, grouped by remedy.

::

    KernelError (rlm_ipc.errors)
    └── ModelError
        ├── ModelUnavailable     retryable: no connection, too many requests, the endpoint failed, a stream broke off
        ├── ModelRefused         this request will not be answered: too long, not permitted, declined by the model
        └── ModelMisconfigured   no request will be answered: no provider, no key, a wrong one, an unknown model

No message contains a key: endpoints are named only by host.
"""

from __future__ import annotations

from rlm_ipc.errors import KernelError

__all__ = ["ModelError", "ModelMisconfigured", "ModelRefused", "ModelUnavailable"]


class ModelError(KernelError):
    """A language model gave no answer."""


class ModelUnavailable(ModelError):
    """It may answer later; the retries of this request are used up."""


class ModelRefused(ModelError):
    """It will not answer this request, but may answer others."""


class ModelMisconfigured(ModelError):
    """It cannot be used before the configuration is corrected; the message says where."""
