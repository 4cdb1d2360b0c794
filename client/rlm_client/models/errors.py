"""What can go wrong when a language model is asked, by what helps.

::

    KernelError (rlm_ipc.errors)
    └── ModelError
        ├── ModelUnavailable     retryable: no connection, too many requests, the endpoint failed, a stream broke off
        ├── ModelRefused         this request will not be answered: too long, not permitted, declined by the model
        └── ModelMisconfigured   nobody's request will be: no provider, no key, a wrong one, an unknown model

No message holds a key: endpoints are named by their host only.
"""

from __future__ import annotations

from rlm_ipc.errors import KernelError

__all__ = ["ModelError", "ModelMisconfigured", "ModelRefused", "ModelUnavailable"]


class ModelError(KernelError):
    """A language model gave no answer."""


class ModelUnavailable(ModelError):
    """It may answer later; the retries of this request are used up."""


class ModelRefused(ModelError):
    """It will not answer this request; another one may be answered."""


class ModelMisconfigured(ModelError):
    """It cannot be asked at all before the configuration is corrected; the message says where."""
