"""What a model has been told, kept within a number of tokens: pruned, masked or folded, and never lost.

Importable alone: the standard library is all that it needs.
"""

from rlm_memory.transcripts.manager import ContextManager
from rlm_memory.transcripts.messages import Message
from rlm_memory.transcripts.pruner import ContextPruner, ImportanceLevel, PruningConfig
from rlm_memory.transcripts.turn import Turn

__all__ = ["ContextManager", "ContextPruner", "ImportanceLevel", "Message", "PruningConfig", "Turn"]
