"""The section `rules`: what the repository tells whoever works on it, quoted with its source. None of it is ours."""

from rlm_lock.sections.rules.collecting import rules_of
from rlm_lock.sections.rules.model import Rule, RuleKind, Rules, RuleSet, Severity, quoted

__all__ = ["Rule", "RuleKind", "RuleSet", "Rules", "Severity", "quoted", "rules_of"]
