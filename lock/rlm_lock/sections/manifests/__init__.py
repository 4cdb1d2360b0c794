"""What a project's manifests declare: packages and direct dependencies. Nothing of the project is executed."""

from rlm_lock.sections.manifests.collecting import Manifests, Package, manifest_kind, read_manifests
from rlm_lock.sections.manifests.model import Dependency, Ecosystem, Manifest

__all__ = ["Dependency", "Ecosystem", "Manifest", "Manifests", "Package", "manifest_kind", "read_manifests"]
