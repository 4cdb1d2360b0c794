"""Conversations with a model, kept within a number of tokens: pruned, masked or folded, and never lost.

The package can be imported alone: it needs only the standard library.
"""

from rlm_memory.transcripts.manager import ContextManager
from rlm_memory.transcripts.messages import Message
from rlm_memory.transcripts.pruner import ContextPruner, ImportanceLevel, PruningConfig
from rlm_memory.transcripts.turn import Turn

__all__ = ["ContextManager", "ContextPruner", "ImportanceLevel", "Message", "PruningConfig", "Turn"]
